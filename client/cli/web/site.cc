#include "client/cli/web/site.h"

#include <boost/asio/post.hpp>
#include <utility>

#include "base/text/number.h"
#include "client/cli/views/text.h"
#include "client/cli/web/accounts.h"

namespace gpumem::cli::web {
namespace {

constexpr int kMostAsking = 8;
constexpr const char* kType = "Content-Type";

std::vector<UniqueFd> one_socket(UniqueFd socket) {
  std::vector<UniqueFd> sockets;
  sockets.push_back(std::move(socket));
  return sockets;
}

// Whether `query` is empty, or says since when.
bool read_since(std::string_view query, std::optional<std::int64_t>& since) {
  constexpr std::string_view kName = "since=";
  if (query.empty()) return true;
  if (!query.starts_with(kName)) return false;
  since = whole_number<std::int64_t>(std::string_view(query).substr(kName.size()));
  return since && *since >= 0;
}

http::Answer accounts_answer(const std::filesystem::path& runtime_folder, std::optional<std::int64_t> since) {
  const auto accounts = accounts_json(runtime_folder, since);
  if (!accounts) return http::plain_answer(503, printable(accounts.error().message));
  return {.body = std::make_shared<const std::string>(
              accounts->dump(-1, ' ', true, Json::error_handler_t::replace)),
          .fields = {{kType, "application/json"}}};
}

}  // namespace

Site::Site(Options options)
    : gate_(std::move(options.token)),
      runtime_folder_(options.runtime_folder),
      html_(std::make_shared<const std::string>(std::move(options.page.html))),
      policy_(std::move(options.page.policy)),
      server_({.sockets = one_socket(std::move(options.socket)),
               .handle =
                   [this](const http::Request& request, http::HttpServer::Respond respond) {
                     answer(request, [this, respond = std::move(respond)](http::Answer answer) {
                       respond(with_fields(std::move(answer)));
                     });
                   }}),
      feed_(runtime_folder_, std::move(options.hello)) {
  server_.start();
}

Site::~Site() { server_.stop(); }

void Site::answer(const http::Request& request, const http::HttpServer::Respond& respond) {
  const std::string_view target(request.target().data(), request.target().size());
  const std::string_view path = target.substr(0, target.find('?'));
  const std::string_view query = path.size() < target.size() ? target.substr(path.size() + 1) : "";
  if (auto refused = gate_.refuse(request, path == "/" ? Gate::Asked::kPage : Gate::Asked::kData))
    return respond(std::move(*refused));
  if (path == "/") return respond({.body = html_, .fields = {{kType, "text/html; charset=utf-8"}}});
  if (path == "/api/stream") return respond(open_stream());
  if (path == "/api/accounts") return ask_accounts(query, respond);
  respond(http::plain_answer(404));
}

http::Answer Site::open_stream() {
  auto place = feed_.take_place();
  if (!place) return http::plain_answer(503, std::to_string(Feed::kMostPages) + " pages are open: close one");
  return {.fields = {{kType, "text/event-stream"}},
          .stream = [this, place = std::move(place)](std::shared_ptr<http::Stream> stream) {
            feed_.add(place, std::move(stream));
          }};
}

void Site::ask_accounts(std::string_view query, http::HttpServer::Respond respond) {
  std::optional<std::int64_t> since;
  if (!read_since(query, since)) return respond(http::plain_answer(400, "since=SECONDS is understood"));
  if (asking_ >= kMostAsking) return respond(http::plain_answer(503, "too many ask: try again"));
  ++asking_;
  boost::asio::post(workers_, [this, since, respond = std::move(respond)] {
    http::Answer answer = accounts_answer(runtime_folder_, since);
    --asking_;
    respond(std::move(answer));
  });
}

// Nothing of this may be framed, guessed at, kept or read by pages of others.
http::Answer Site::with_fields(http::Answer answer) const {
  for (const auto& [name, value] : std::initializer_list<std::pair<const char*, const char*>>{
           {"Content-Security-Policy", policy_.c_str()},
           {"X-Content-Type-Options", "nosniff"},
           {"X-Frame-Options", "DENY"},
           {"Referrer-Policy", "no-referrer"},
           {"Cross-Origin-Resource-Policy", "same-origin"},
           {"Cross-Origin-Opener-Policy", "same-origin"},
           {"Cache-Control", "no-store"}})
    answer.fields.emplace_back(name, value);
  return answer;
}

}  // namespace gpumem::cli::web
