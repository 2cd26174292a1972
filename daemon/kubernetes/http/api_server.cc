#include "daemon/kubernetes/http/api_server.h"

#include <cctype>
#include <cstdlib>
#include <thread>

#include "base/system/files.h"

namespace gpumem::kubernetes {
namespace {

constexpr int kTries = 3;
constexpr std::chrono::milliseconds kFirstPause{500};
constexpr const char* kServiceAccount = "/var/run/secrets/kubernetes.io/serviceaccount";

Code code_of_http(unsigned status, const Json& answer) {
  switch (status) {
    case 401: return Code::kUnauthenticated;
    case 403: return Code::kPermissionDenied;
    case 404: return Code::kNotFound;
    case 409:
      return text_field(answer, {"reason"}) == "AlreadyExists" ? Code::kAlreadyExists : Code::kAborted;
    case 400:
    case 422: return Code::kInvalidArgument;
    case 429: return Code::kUnavailable;
    default: return status >= 500 ? Code::kUnavailable : Code::kInternal;
  }
}

std::string advice(unsigned status) {
  if (status == 401) return "; is the token that of the driver's service account?";
  if (status == 403) return "; the driver's ClusterRole has to allow it";
  return {};
}

Error refusal(const HttpRequest& request, const HttpAnswer& answer) {
  const Json status = parse_json(answer.body);
  std::string words = text_field(status, {"message"});
  if (words.empty()) words = "no reason given";
  return {code_of_http(answer.status, status), "the API server answers " + std::to_string(answer.status) +
                                                   " to " + request.method + " " + request.path + ": " +
                                                   words + advice(answer.status)};
}

bool is_passing(Code code) { return code == Code::kUnavailable || code == Code::kDeadlineExceeded; }

// Nothing but what may stand in a header.
std::string trimmed(std::string text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.pop_back();
  return text;
}

}  // namespace

std::string escaped(const std::string& text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string made;
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if (std::isalnum(byte) != 0 || letter == '-' || letter == '.' || letter == '_' || letter == '~')
      made += letter;
    else
      made += {'%', kHex[byte >> 4], kHex[byte & 15]};
  }
  return made;
}

Result<ApiServer::Options> ApiServer::in_cluster() {
  const char* host = std::getenv("KUBERNETES_SERVICE_HOST");
  const char* port = std::getenv("KUBERNETES_SERVICE_PORT");
  if (host == nullptr || port == nullptr)
    return Error{
        Code::kFailedPrecondition,
        "this is no pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set; use --api-server"};
  const std::filesystem::path account = kServiceAccount;
  return Options{.endpoint = {.tls = true, .host = host, .port = port, .prefix = {}},
                 .token_file = account / "token",
                 .ca_file = account / "ca.crt"};
}

Result<Json> ApiServer::call_once(HttpRequest& request) const {
  if (!options_.token_file.empty()) {
    auto token = read_text(options_.token_file);
    if (!token)
      return Error{Code::kUnauthenticated, "the token for the API server: " + token.error().message};
    request.token = trimmed(std::move(*token));
  }
  auto answer = exchange(options_.endpoint, options_.ca_file, request, options_.patience);
  if (!answer) {
    const Code code = is_passing(answer.error().code) ? Code::kUnavailable : answer.error().code;
    return Error{code, "the API server " + answer.error().message};
  }
  if (answer->status < 200 || answer->status > 299) return refusal(request, *answer);
  Json json = parse_json(answer->body);
  if (json.is_discarded())
    return Error{Code::kInternal,
                 "the API server's answer to " + request.method + " " + request.path + " is no JSON"};
  return json;
}

Result<Json> ApiServer::call(HttpRequest request, Retry retry) const {
  std::chrono::milliseconds pause = kFirstPause;
  for (int tries = 1;; ++tries, pause *= 2) {
    if (stopping_) return Error{Code::kUnavailable, "this driver is about to end"};
    auto answer = call_once(request);
    if (answer || !is_passing(answer.error().code) || retry == Retry::kNot || tries == kTries) return answer;
    std::this_thread::sleep_for(pause);
  }
}

Result<Json> ApiServer::get(const std::string& path, Retry retry) const {
  return call({.method = "GET", .path = path, .body = {}, .token = {}}, retry);
}

Result<Json> ApiServer::create(const std::string& path, const Json& object) const {
  return call({.method = "POST", .path = path, .body = json_text(object), .token = {}}, Retry::kThrice);
}

Result<Json> ApiServer::replace(const std::string& path, const Json& object) const {
  return call({.method = "PUT", .path = path, .body = json_text(object), .token = {}}, Retry::kThrice);
}

Result<void> ApiServer::remove(const std::string& path) const {
  auto answer = call({.method = "DELETE", .path = path, .body = {}, .token = {}}, Retry::kThrice);
  if (!answer && answer.error().code != Code::kNotFound) return answer.error();
  return {};
}

}  // namespace gpumem::kubernetes
