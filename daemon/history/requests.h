#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "daemon/history/history_server.h"

namespace gpumem::history {

/// Knows the requests of the history's socket, and who may make them. Root and the administrators see
/// everything, other users the rows of their own number.
///   GET /v1/usage?since=SECONDS&until=SECONDS&by=tenant,user,device,day   each part may be missing
///   POST /v1/forget?uid=NUMBER   for administrators
/// An answer that is no success has `error`, in words.   Threads  one at a time.
class Requests {
 public:
  struct Options {
    std::filesystem::path file;
    std::function<std::optional<std::uint32_t>()> admin_group;
    std::function<std::string()> problem;   ///< why nothing is written at present; empty: it is
    std::function<std::int64_t()> now;      ///< seconds since 1970
    std::function<void()> damaged = [] {};  ///< told when the store cannot be read
  };
  explicit Requests(Options options) : options_(std::move(options)) {}

  Answer answer(const Peer& peer, const std::string& method, const std::string& target) const;

 private:
  Answer usage(const Viewer& viewer, const std::string& query) const;
  Answer forget_user(const Viewer& viewer, const std::string& query) const;

  Options options_;
};

}  // namespace gpumem::history
