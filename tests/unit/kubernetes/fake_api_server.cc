#include "tests/unit/kubernetes/fake_api_server.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>

#include "tests/support/temporary_folder.h"

namespace gpumem::kubernetes::test {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

const std::string kSlicesPath = "/apis/resource.k8s.io/v1/resourceslices";

HttpAnswer json_answer(unsigned status, const Json& json) { return {status, json.dump()}; }

HttpAnswer failure(unsigned status, const std::string& reason, const std::string& message) {
  return json_answer(status, {{"kind", "Status"}, {"reason", reason}, {"message", message}});
}

void erase_fields(Json& json, const std::set<std::string>& names) {
  for (const std::string& name : names) {
    if (json.is_object()) json.erase(name);
  }
  for (Json& below : json) {
    if (below.is_structured()) erase_fields(below, names);
  }
}

}  // namespace

FakeApiServer::FakeApiServer(const std::filesystem::path& folder) : folder_(folder) {
  gpumem::test::write_file(folder_ / "ca.crt", certificate_.certificate);
  write_token(token_);
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ::bind(listener_, reinterpret_cast<sockaddr*>(&address), size);
  ::listen(listener_, 64);
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { serve(); });
}

FakeApiServer::~FakeApiServer() {
  stopping_ = true;
  let_go();
  ::shutdown(listener_, SHUT_RDWR);  // ends accept()
  thread_.join();
  ::close(listener_);
}

ApiServer::Options FakeApiServer::options() const {
  return {.endpoint = {.tls = true, .host = "127.0.0.1", .port = std::to_string(port_), .prefix = {}},
          .token_file = folder_ / "token",
          .ca_file = folder_ / "ca.crt"};
}

void FakeApiServer::write_token(const std::string& token) const {
  gpumem::test::write_file(folder_ / "token", token + "\n");
}

void FakeApiServer::put(const std::string& path, Json object) {
  const std::lock_guard lock(mutex_);
  objects_.insert_or_assign(path, std::move(object));
}

void FakeApiServer::put_claim(const Json& claim) {
  put("/apis/resource.k8s.io/v1/namespaces/" + text_field(claim, {"metadata", "namespace"}) +
          "/resourceclaims/" + text_field(claim, {"metadata", "name"}),
      claim);
}

void FakeApiServer::remove(const std::string& path) {
  const std::lock_guard lock(mutex_);
  objects_.erase(path);
  slices_.erase(path);
}

void FakeApiServer::expect_token(const std::string& token) {
  const std::lock_guard lock(mutex_);
  token_ = token;
}

void FakeApiServer::fail(unsigned status, int count) {
  const std::lock_guard lock(mutex_);
  failing_status_ = status;
  failing_ = count;
}

void FakeApiServer::hold(const std::string& part) {
  const std::lock_guard lock(mutex_);
  held_ = part;
}

void FakeApiServer::let_go() {
  const std::lock_guard lock(mutex_);
  held_.clear();
  let_go_.notify_all();
}

bool FakeApiServer::is_holding() {
  const std::lock_guard lock(mutex_);
  return holding_;
}

void FakeApiServer::wait_while_held(const std::string& path) {
  std::unique_lock lock(mutex_);
  holding_ = !held_.empty() && path.find(held_) != std::string::npos;
  if (holding_) let_go_.wait(lock, [this] { return held_.empty(); });
  holding_ = false;
}

void FakeApiServer::drop(std::set<std::string> names) {
  const std::lock_guard lock(mutex_);
  dropped_ = std::move(names);
}

std::vector<Json> FakeApiServer::slices() {
  const std::lock_guard lock(mutex_);
  std::vector<Json> all;
  for (const auto& [name, slice] : slices_) all.push_back(slice);
  return all;
}

std::vector<std::string> FakeApiServer::requests() {
  const std::lock_guard lock(mutex_);
  return requests_;
}

HttpAnswer FakeApiServer::answer(const HttpRequest& request) {
  const std::lock_guard lock(mutex_);
  if (request.token != "Bearer " + token_) return failure(401, "Unauthorized", "Unauthorized");
  if (failing_ > 0) {
    --failing_;
    return failure(failing_status_, "Failing", "told to fail");
  }
  requests_.push_back(request.method + " " + request.path);
  if (request.path.starts_with(kSlicesPath)) return answer_slices(request);
  const auto found = objects_.find(request.path);
  if (request.method != "GET" || found == objects_.end())
    return failure(404, "NotFound", request.path + " not found");
  return json_answer(200, found->second);
}

HttpAnswer FakeApiServer::store_slice(const std::string& name, Json slice) {
  erase_fields(slice["spec"], dropped_);
  slice["metadata"]["resourceVersion"] = std::to_string(++version_);
  slices_.insert_or_assign(name, slice);
  return json_answer(200, slice);
}

HttpAnswer FakeApiServer::answer_slices(const HttpRequest& request) {
  if (request.method == "GET") {
    Json items = Json::array();
    for (const auto& [name, slice] : slices_) items.push_back(slice);
    return json_answer(200, {{"kind", "ResourceSliceList"}, {"items", items}});
  }
  Json slice = request.body.empty() ? Json() : Json::parse(request.body);
  if (request.method == "POST") {
    const std::string made = text_field(slice, {"metadata", "name"});
    if (slices_.count(made) != 0) return failure(409, "AlreadyExists", made + " already exists");
    return store_slice(made, std::move(slice));
  }
  const std::string name = request.path.substr(kSlicesPath.size() + 1);
  const auto found = slices_.find(name);
  if (found == slices_.end()) return failure(404, "NotFound", name + " not found");
  if (request.method == "DELETE") {
    slices_.erase(found);
    return json_answer(200, {{"kind", "Status"}});
  }
  if (field(found->second, {"metadata", "resourceVersion"}) != field(slice, {"metadata", "resourceVersion"}))
    return failure(409, "Conflict", "the object has been modified");
  return store_slice(name, std::move(slice));
}

void FakeApiServer::serve() {
  while (!stopping_) {
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) continue;
    if (away_ || stopping_)
      ::close(socket);
    else
      serve_one(socket);
  }
}

void FakeApiServer::serve_one(int socket) {
  asio::io_context io;
  asio::ssl::context tls(asio::ssl::context::tls_server);
  tls.use_certificate_chain(asio::buffer(certificate_.certificate));
  tls.use_private_key(asio::buffer(certificate_.key), asio::ssl::context::pem);
  boost::beast::ssl_stream<asio::ip::tcp::socket> stream(
      asio::ip::tcp::socket(io, asio::ip::tcp::v4(), socket), tls);
  boost::system::error_code error;
  stream.handshake(asio::ssl::stream_base::server, error);
  if (error) return;
  boost::beast::flat_buffer buffer;
  http::request<http::string_body> read;
  http::read(stream, buffer, read, error);
  if (error) return;
  const HttpAnswer made = answer({.method = std::string(read.method_string()),
                                  .path = std::string(read.target()),
                                  .body = read.body(),
                                  .token = std::string(read[http::field::authorization])});
  wait_while_held(std::string(read.target()));
  http::response<http::string_body> response(static_cast<http::status>(made.status), read.version());
  response.set(http::field::content_type, "application/json");
  response.body() = made.body;
  response.prepare_payload();
  http::write(stream, response, error);
  stream.shutdown(error);
}

}  // namespace gpumem::kubernetes::test
