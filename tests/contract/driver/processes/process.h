#pragma once
#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>

#include "base/system/unique_fd.h"

namespace gpumem::contract {

/// One end of a channel between the test and a process of it.
class Channel {
 public:
  explicit Channel(UniqueFd socket) : socket_(std::move(socket)) {}

  void signal() { send(-1); }
  /// Blocks until the other side signals or sends; fails the test if it ends instead.
  void await() { receive(); }
  void signal_and_await() {
    signal();
    await();
  }
  /// Sends a copy of `descriptor`.
  void send(int descriptor);
  UniqueFd receive();
  /// Sends up to 4 KiB; not empty.
  void tell(std::string_view text);
  std::string hear();
  /// Empty if the other side has ended.
  std::string try_hear();
  /// Sends nothing more: the other side fails where it still awaits something.
  void finish();

  /// A plain value, as bytes. Both ends are the same program.
  template <class Value>
  void tell_value(const Value& value) {
    tell({reinterpret_cast<const char*>(&value), sizeof value});
  }
  template <class Value>
  Value hear_value() {
    Value value{};
    const std::string bytes = hear();
    if (bytes.size() == sizeof value) bytes.copy(reinterpret_cast<char*>(&value), sizeof value);
    return value;
  }

 private:
  UniqueFd socket_;
};

/// A process that runs `body` and then ends, successfully if no expectation failed in it. Killed with its
/// owner.
class Process {
 public:
  explicit Process(std::function<void(Channel&)> body);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  Channel& channel() { return channel_; }
  pid_t pid() const { return pid_; }
  /// Waits for the end, which must be a successful one.
  void join();
  void signal_and_join() {
    channel_.signal();
    join();
  }
  /// Waits for the end, whatever it is: the wait status.
  int wait();
  /// SIGKILL, and waits.
  void kill();

 private:
  Channel channel_{UniqueFd()};
  pid_t pid_ = -1;
};

/// Runs `body` in a process of its own.
void in_process(const std::function<void()>& body);

}  // namespace gpumem::contract

/// As TEST_F, with the body in a process of its own, after `enter` there.
#define GPUMEM_TEST_IN_PROCESS(fixture, name, enter)                                                    \
  struct fixture##_##name##_InProcess : fixture {                                                       \
    void body();                                                                                        \
  };                                                                                                    \
  GTEST_TEST_(fixture, name, fixture##_##name##_InProcess, ::testing::internal::GetTypeId<fixture>()) { \
    in_process([this] {                                                                                 \
      enter;                                                                                            \
      body();                                                                                           \
    });                                                                                                 \
  }                                                                                                     \
  void fixture##_##name##_InProcess::body()
#define TEST_IN_PROCESS(fixture, name) GPUMEM_TEST_IN_PROCESS(fixture, name, )
