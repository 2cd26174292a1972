#include "client/cli/monitor/history_client.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <cstdlib>

#include "base/system/unix_socket.h"
#include "client/process/runtime_folder.h"
#include "proto/lane.h"

namespace gpumem::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

constexpr std::chrono::seconds kAnswerPatience{20};
constexpr std::uint64_t kMostBytes = 64 << 20;

// One exchange on a connection of its own.
class Exchange {
 public:
  Exchange(asio::io_context& loop, const std::string& method, const std::string& target) : stream_(loop) {
    request_.method_string(method);
    request_.target(target);
    request_.version(11);
    request_.set(http::field::host, "localhost");
    parser_.body_limit(kMostBytes);
  }

  void start(const std::filesystem::path& socket) {
    stream_.expires_after(kAnswerPatience);
    stream_.async_connect(
        asio::local::stream_protocol::endpoint(socket.string()), [this](beast::error_code error) {
          if (!good(error)) return;
          http::async_write(stream_, request_, [this](beast::error_code failed, std::size_t) {
            if (!good(failed)) return;
            http::async_read(stream_, buffer_, parser_, [this](beast::error_code unread, std::size_t) {
              static_cast<void>(good(unread));
            });
          });
        });
  }

  const beast::error_code& error() const { return error_; }
  unsigned status() const { return parser_.get().result_int(); }
  const std::string& body() const { return parser_.get().body(); }

 private:
  bool good(beast::error_code error) {
    error_ = error;
    return !error;
  }

  beast::basic_stream<asio::local::stream_protocol> stream_;
  http::request<http::empty_body> request_;
  http::response_parser<http::string_body> parser_;
  beast::flat_buffer buffer_;
  beast::error_code error_;
};

Error connection_error(const std::filesystem::path& socket, const beast::error_code& error) {
  if (error == asio::error::connection_refused || error == boost::system::errc::no_such_file_or_directory)
    return {Code::kNotFound, "gpumem-history does not run here, at " + socket.string() +
                                 ": install its package, or systemctl start gpumem-history"};
  if (error == asio::error::access_denied) return client::connect_error(socket, EACCES);
  if (error == beast::error::timeout)
    return {Code::kDeadlineExceeded, "gpumem-history does not answer; see systemctl status gpumem-history"};
  if (error == http::error::end_of_stream || error == asio::error::connection_reset ||
      error == asio::error::broken_pipe)
    return {Code::kResourceExhausted, "gpumem-history has too many questions: ask again"};
  return {Code::kInternal, socket.string() + ": " + error.message()};
}

Code code_of(unsigned status) {
  switch (status) {
    case 400: return Code::kInvalidArgument;
    case 403: return Code::kPermissionDenied;
    case 404: return Code::kNotFound;
    case 413: return Code::kResourceExhausted;
    default: return Code::kInternal;
  }
}

Result<std::filesystem::path> history_socket(const std::filesystem::path& runtime_folder) {
  const char* named = ::secure_getenv("GPUMEM_HISTORY_SOCKET");
  if (named != nullptr && *named != '\0') return std::filesystem::path(named);
  if (runtime_folder == kDefaultRuntimeFolder)
    return std::filesystem::path("/run/gpumem-history/history.sock");
  return Error{Code::kNotFound,
               "gpumem-history is asked for the machine's own broker alone; for the one in " +
                   runtime_folder.string() +
                   ", GPUMEM_HISTORY_SOCKET names the socket of its gpumem-history"};
}

}  // namespace

Result<nlohmann::json> ask_history(const std::filesystem::path& runtime_folder, const std::string& method,
                                   const std::string& target) {
  const auto found = history_socket(runtime_folder);
  if (!found) return found.error();
  const std::filesystem::path& socket = *found;
  if (socket.native().size() > kLongestSocketPath) return errno_error(ENAMETOOLONG, socket.string());
  asio::io_context loop;
  Exchange exchange(loop, method, target);
  exchange.start(socket);
  loop.run();
  if (exchange.error()) return connection_error(socket, exchange.error());
  auto answer = nlohmann::json::parse(exchange.body(), nullptr, false);
  if (exchange.status() == 200 && answer.is_object()) return answer;
  const bool has_words = answer.is_object() && answer.contains("error") && answer["error"].is_string();
  return Error{code_of(exchange.status()),
               "gpumem-history: " +
                   (has_words ? answer["error"].get<std::string>() : "an answer that is not understood")};
}

}  // namespace gpumem::cli
