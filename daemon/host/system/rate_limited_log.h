#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <string>

namespace gpumem::host {

/// Warnings that clients and other processes can cause: so many a second are logged, and each text once in a
/// row; of the others only the number. Threads  the loop's.
class RateLimitedLog {
 public:
  static constexpr int kPerSecond = 10;

  explicit RateLimitedLog(boost::asio::io_context& loop) : second_(loop) {}
  void warn(const std::string& words);

 private:
  void begin_second();

  boost::asio::steady_timer second_;
  bool counting_ = false;
  int said_ = 0;
  std::string latest_;  ///< of this second
  std::size_t unsaid_ = 0;
};

}  // namespace gpumem::host
