#pragma once
#include <filesystem>
#include <functional>
#include <string>

#include "daemon/history/history_server.h"
#include "daemon/history/sample.h"

namespace gpumem::history {

/// Knows the requests of the history's socket, and who may make them. Root and the administrators see
/// everything, other users the rows of their own number, and those of the tenant that their group is.
///   GET /v1/usage?since=SECONDS&until=SECONDS&by=tenant,user,device,day,namespace,pod   each part may be
///   missing
///   GET /v1/events?since=SECONDS&until=SECONDS&after=NUMBER
///   GET /v1/jobs?since=SECONDS&until=SECONDS   those that ended then, of the own number only, as
///   GET /v1/sessions?since=SECONDS&until=SECONDS
///   POST /v1/forget?uid=NUMBER   for administrators
/// An answer that is no success has `error`, in words.   Threads  one at a time.
class Requests {
 public:
  struct Options {
    std::filesystem::path file;
    std::function<Rights()> rights;
    std::function<std::string()> problem;   ///< why nothing is written at present; empty: it is
    std::function<std::int64_t()> now;      ///< seconds since 1970
    std::function<void()> damaged = [] {};  ///< told when the store cannot be read
  };
  explicit Requests(Options options) : options_(std::move(options)) {}

  Answer answer(const Peer& peer, const std::string& method, const std::string& target) const;

 private:
  Answer told(const Viewer& viewer, const std::string& path, const std::string& query) const;
  Answer forget_user(const Viewer& viewer, const std::string& query) const;

  Options options_;
};

}  // namespace gpumem::history
