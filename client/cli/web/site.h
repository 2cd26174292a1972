#pragma once
#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <filesystem>
#include <string>

#include "base/http/http_server.h"
#include "client/cli/web/feed.h"
#include "client/cli/web/gate.h"
#include "client/cli/web/page.h"

namespace gpumem::cli::web {

/// Serves the page and its data:
///   GET /                          the page
///   GET /api/stream                Feed
///   GET /api/accounts[?since=N]    accounts_json(); an error is text
class Site {
 public:
  struct Options {
    UniqueFd socket;    ///< listening and non-blocking
    std::string token;  ///< as Gate's
    std::filesystem::path runtime_folder;
    Page page;
    Json hello;  ///< as Feed's
  };

  explicit Site(Options options);
  /// Cuts every connection.
  ~Site();
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;

 private:
  void answer(const http::Request& request, const http::HttpServer::Respond& respond);
  http::Answer open_stream();
  void ask_accounts(std::string_view query, http::HttpServer::Respond respond);
  http::Answer with_fields(http::Answer answer) const;

  const Gate gate_;
  const std::filesystem::path runtime_folder_;
  const http::Text html_;
  const std::string policy_;
  http::HttpServer server_;
  Feed feed_;  ///< this and the next go first: they use the server
  std::atomic<int> asking_ = 0;
  boost::asio::thread_pool workers_{1};
};

}  // namespace gpumem::cli::web
