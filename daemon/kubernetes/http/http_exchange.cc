#include "daemon/kubernetes/http/http_exchange.h"

#include <openssl/err.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <optional>

namespace gpumem::kubernetes {
namespace {

bool is_loopback(const std::string& host) {
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(host, error);
  return !error && address.is_loopback();
}

bool is_port(std::string_view text) {
  return !text.empty() && text.size() <= 5 &&
         std::all_of(text.begin(), text.end(), [](char letter) { return letter >= '0' && letter <= '9'; });
}

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Tcp = asio::ip::tcp;
using boost::system::error_code;

constexpr std::uint64_t kLargestBody = 64 << 20;

// One request and its answer, step by step; the first error ends it.
class Exchange {
 public:
  Exchange(asio::io_context& io, asio::ssl::context* tls, const Endpoint& server, const HttpRequest& request)
      : server_(server), resolver_(io), plain_(io), timer_(io) {
    if (tls != nullptr) secure_.emplace(io, *tls);
    request_.method_string(request.method);
    request_.target(server.prefix + request.path);
    request_.set(http::field::host, server.authority());
    request_.set(http::field::user_agent, "gpumem-dra/" GPUMEM_VERSION);
    request_.set(http::field::accept, "application/json");
    request_.keep_alive(false);
    if (!request.token.empty()) request_.set(http::field::authorization, "Bearer " + request.token);
    if (!request.body.empty()) request_.set(http::field::content_type, "application/json");
    request_.body() = request.body;
    request_.prepare_payload();
    parser_.body_limit(kLargestBody);
  }

  void start(std::chrono::milliseconds patience) {
    // One timer for all of it: of names that are looked up, the library's own deadlines know nothing.
    timer_.expires_after(patience);
    timer_.async_wait([this](error_code error) {
      if (error) return;
      late_ = true;
      resolver_.cancel();
      socket().close();
    });
    if (secure_) prepare_tls();
    resolver_.async_resolve(server_.host, server_.port,
                            [this](error_code error, const Tcp::resolver::results_type& found) {
                              if (!go_on(error, "cannot find its address")) return;
                              socket().async_connect(found, [this](error_code failed, const Tcp::endpoint&) {
                                if (go_on(failed, "cannot connect")) secure_ ? shake_hands() : write(plain_);
                              });
                            });
  }

  Result<HttpAnswer> result() const {
    if (late_) return Error{Code::kDeadlineExceeded, "has not answered in time"};
    if (failed_) return *failed_;
    return HttpAnswer{parser_.get().result_int(), parser_.get().body()};
  }

 private:
  beast::tcp_stream& socket() { return secure_ ? beast::get_lowest_layer(*secure_) : plain_; }

  void prepare_tls() {
    // Servers with several certificates are told whose is wanted; an address must not be.
    if (!is_address(server_.host)) SSL_set_tlsext_host_name(secure_->native_handle(), server_.host.c_str());
    secure_->set_verify_callback([this](bool chain_holds, asio::ssl::verify_context& chain) {
      if (asio::ssl::host_name_verification(server_.host)(chain_holds, chain)) return true;
      if (chain_holds) {
        const int reason =
            is_address(server_.host) ? X509_V_ERR_IP_ADDRESS_MISMATCH : X509_V_ERR_HOSTNAME_MISMATCH;
        X509_STORE_CTX_set_error(chain.native_handle(), reason);
      }
      return false;
    });
  }

  // Of the certificate, which the error itself does not tell.
  std::string reason() {
    return std::string(" (") +
           X509_verify_cert_error_string(SSL_get_verify_result(secure_->native_handle())) + ")";
  }

  void shake_hands() {
    secure_->async_handshake(asio::ssl::stream_base::client, [this](error_code error) {
      if (go_on(error, "TLS")) write(*secure_);
    });
  }

  template <class Stream>
  void write(Stream& stream) {
    http::async_write(stream, request_, [this, &stream](error_code error, std::size_t) {
      if (!go_on(error, "cannot send the request")) return;
      http::async_read(stream, buffer_, parser_, [this](error_code failed, std::size_t) {
        if (go_on(failed, "cannot read the answer")) timer_.cancel();
      });
    });
  }

  bool go_on(error_code error, const char* what) {
    if (!error && !late_) return true;
    const bool not_trusted =
        error.category() == asio::error::get_ssl_category() &&
        ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_CERTIFICATE_VERIFY_FAILED;
    failed_ = Error{not_trusted ? Code::kPermissionDenied : Code::kUnavailable,
                    std::string(what) + ": " + error.message() + (not_trusted ? reason() : std::string())};
    timer_.cancel();
    return false;
  }

  const Endpoint& server_;
  Tcp::resolver resolver_;
  beast::tcp_stream plain_;
  std::optional<beast::ssl_stream<beast::tcp_stream>> secure_;
  asio::steady_timer timer_;
  http::request<http::string_body> request_;
  http::response_parser<http::string_body> parser_;
  beast::flat_buffer buffer_;
  std::optional<Error> failed_;
  bool late_ = false;
};

// Read for each exchange: authorities are renewed while the driver runs.
Result<void> trust(asio::ssl::context& tls, const std::filesystem::path& ca_file) {
  error_code error;
  tls.set_verify_mode(asio::ssl::verify_peer, error);
  if (!error) {
    if (ca_file.empty())
      tls.set_default_verify_paths(error);
    else
      tls.load_verify_file(ca_file.string(), error);
  }
  if (!error) return {};
  return Error{Code::kFailedPrecondition,
               "the certificates of " + ca_file.string() + " cannot be used: " + error.message()};
}

}  // namespace

std::string Endpoint::authority() const {
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + port;
}

bool is_address(const std::string& host) {
  boost::system::error_code error;
  boost::asio::ip::make_address(host, error);
  return !error;
}

Result<Endpoint> parse_endpoint(std::string_view url) {
  const Error wrong{Code::kInvalidArgument, "\"" + std::string(url) + "\" is no https://HOST[:PORT]"};
  Endpoint endpoint;
  std::string_view rest = url;
  endpoint.tls = !rest.starts_with("http://");
  if (!rest.starts_with("https://") && endpoint.tls) return wrong;
  rest.remove_prefix(endpoint.tls ? 8 : 7);
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  endpoint.prefix = rest.substr(slash);
  while (endpoint.prefix.ends_with('/')) endpoint.prefix.pop_back();
  std::string_view authority = rest.substr(0, slash);
  const std::size_t bracket = authority.rfind(']');
  const std::size_t colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  endpoint.port = endpoint.tls ? "443" : "80";
  if (colon != std::string_view::npos) {
    endpoint.port = authority.substr(colon + 1);
    authority = authority.substr(0, colon);
  }
  if (authority.starts_with('[') && authority.ends_with(']'))
    authority = authority.substr(1, authority.size() - 2);
  endpoint.host = authority;
  if (endpoint.host.empty() || endpoint.host.find_first_of("[]@ ") != std::string::npos ||
      !is_port(endpoint.port))
    return wrong;
  if (!endpoint.tls && !is_loopback(endpoint.host))
    return Error{Code::kInvalidArgument,
                 "\"" + std::string(url) + "\": http is for an address of loopback alone; use https"};
  return endpoint;
}

Result<HttpAnswer> exchange(const Endpoint& server, const std::filesystem::path& ca_file,
                            const HttpRequest& request, std::chrono::milliseconds patience) {
  asio::io_context io;
  asio::ssl::context tls(asio::ssl::context::tls_client);
  if (server.tls) {
    tls.set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                    asio::ssl::context::no_tlsv1_1);
    if (auto trusted = trust(tls, ca_file); !trusted) return trusted.error();
  }
  Exchange one(io, server.tls ? &tls : nullptr, server, request);
  one.start(patience);
  io.run();
  auto result = one.result();
  if (!result) return result.error().in(server.authority());
  return result;
}

}  // namespace gpumem::kubernetes
