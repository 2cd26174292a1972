#pragma once
#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "daemon/kubernetes/http/api_server.h"
#include "tests/unit/kubernetes/certificate.h"

namespace gpumem::kubernetes::test {

/// An API server over TLS on a port of loopback: it keeps objects by their paths, and lists, makes, replaces
/// and deletes ResourceSlices as the real one does, resource versions included. Serves one connection after
/// the other.
class FakeApiServer {
 public:
  /// Its certificate and the token that it takes lie in `folder`.
  explicit FakeApiServer(const std::filesystem::path& folder);
  ~FakeApiServer();

  /// How the driver reaches it.
  ApiServer::Options options() const;

  void put(const std::string& path, Json object);
  void put_claim(const Json& claim);
  void remove(const std::string& path);
  /// Only this token is taken from now on. The driver's file does not change.
  void expect_token(const std::string& token);
  void write_token(const std::string& token) const;
  /// The next `count` requests are answered with `status`.
  void fail(unsigned status, int count);
  /// Connections are closed at once, until `away` is false again.
  void set_away(bool away) { away_ = away; }
  /// Answers to requests with `part` in their path wait, and all behind them, until let_go().
  void hold(const std::string& part);
  void let_go();
  bool is_holding();  ///< whether one waits
  /// Fields of ResourceSlices that it does not know.
  void drop(std::set<std::string> names);

  std::vector<Json> slices();
  /// `GET /path`, in order, without those in between that `failed` or were `away`.
  std::vector<std::string> requests();

 private:
  void serve();
  void serve_one(int socket);
  void wait_while_held(const std::string& path);
  HttpAnswer answer(const HttpRequest& request);
  HttpAnswer answer_slices(const HttpRequest& request);
  HttpAnswer store_slice(const std::string& name, Json slice);

  std::filesystem::path folder_;
  Certificate certificate_ = make_certificate();
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<bool> away_ = false;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;  // guards the members below
  std::condition_variable let_go_;
  std::string held_;
  bool holding_ = false;
  std::map<std::string, Json> objects_;
  std::map<std::string, Json> slices_;
  std::set<std::string> dropped_;
  std::vector<std::string> requests_;
  std::string token_ = "first";
  unsigned failing_status_ = 0;
  int failing_ = 0;
  int version_ = 100;
  std::thread thread_;
};

}  // namespace gpumem::kubernetes::test
