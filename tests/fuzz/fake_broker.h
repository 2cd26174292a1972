#pragma once
#include <deque>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/system/unique_fd.h"
#include "proto/lane/frames.h"
#include "tests/fuzz/input.h"

namespace gpumem::fuzz {

/// Listens in a temporary folder of its own.
class Listener {
 public:
  Listener();
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  std::filesystem::path path() const { return folder_ / "lane.sock"; }
  UniqueFd accept() const;

 private:
  UniqueFd socket_;
  std::filesystem::path folder_;
};

/// Descriptors to send, all of one pipe: whether every copy is closed is seen at its other end.
class Pipe {
 public:
  Pipe();
  std::vector<int> copies(std::size_t count) const { return std::vector<int>(count, writer_.get()); }
  bool is_let_go();

 private:
  UniqueFd reader_;
  UniqueFd writer_;
};

/// What a broker says when it is asked something.
struct Reply {
  enum class End { kFailure, kHangUp, kSilence };
  struct Packet {
    std::string bytes;
    std::size_t descriptors = 0;
    bool numbered = true;  ///< gets the request's number, and `further`
    std::uint64_t further = 0;
  };
  std::vector<Packet> packets;
  End end = End::kFailure;  ///< what comes after them, so that the request has an end
};

/// Makes up what the broker replies.
/// Invariant  a reply ends with silence only if `may_be_silent`.
class ReplyMaker {
 public:
  ReplyMaker(Input& input, bool may_be_silent) : input_(input), may_be_silent_(may_be_silent) {}
  Reply next();

 private:
  Reply::Packet packet();
  std::string frame();
  lane::Welcome welcome();
  lane::Granted granted();
  lane::Imported imported();
  lane::RegionMapped region_mapped();
  lane::Failed failed();
  std::size_t descriptors_for(std::string_view packet);

  Input& input_;
  const bool may_be_silent_;
  std::uint64_t missing_ = 0;  ///< of the last grant
};

/// The broker's end of one lane, in a thread of its own. It gives each request the next of `replies`, then a
/// failure. The client's frames must be whole.
class FakeBroker {
 public:
  FakeBroker(UniqueFd socket, std::deque<Reply> replies);
  /// After the client's end was closed: whether it has closed every descriptor that it was sent.
  bool is_let_go();

 private:
  void serve();
  bool take(std::string_view packet);
  void reply(const Reply& reply, std::uint64_t request);

  UniqueFd socket_;
  std::deque<Reply> replies_;
  Pipe pipe_;
  std::thread thread_;
};

}  // namespace gpumem::fuzz
