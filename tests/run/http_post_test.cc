// The POST of `--on-pressure`: whatever answers, it ends in time.
#include "client/cli/run/program/pressure_hook.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <thread>

#include "base/system/unique_fd.h"
#include "tests/run/loopback_listener.h"

namespace gpumem::test {
namespace {

/// Answers every connection with `answer`, and again and again with `more`, as long as somebody reads.
class Trickle {
 public:
  Trickle(std::string answer, std::string more) {
    url_ = {"127.0.0.1", std::to_string(listener_.port()), "/"};
    thread_ = std::thread([this, text = std::move(answer), more = std::move(more)]() mutable {
      const UniqueFd taken = listener_.accept();
      for (pollfd gone{taken.get(), POLLRDHUP, 0}; taken.valid(); text = more) {
        if (::send(taken.get(), text.data(), text.size(), MSG_NOSIGNAL) < 0) return;
        if (::poll(&gone, 1, 10) != 0) return;
      }
    });
  }
  ~Trickle() {
    listener_.stop();
    thread_.join();
  }
  const cli::HttpUrl& url() const { return url_; }

 private:
  LoopbackListener listener_;
  cli::HttpUrl url_;
  std::thread thread_;
};

TEST(HttpPost, OfAnAnswerThatTricklesEndsInTime) {
  const Trickle server("HTTP/1.1 200 OK\r\n", "a: b\r\n");
  const auto posted = cli::post_json(server.url(), "{}", std::chrono::milliseconds(300));
  ASSERT_FALSE(posted);
  EXPECT_EQ(posted.error().code, Code::kUnavailable);
  EXPECT_NE(posted.error().message.find("no answer in time"), std::string::npos) << posted.error().message;
}

TEST(HttpPost, OfAnAnswerWithoutEndIsRefused) {
  const Trickle server("HTTP/1.1 200 OK\r\n", "a: " + std::string(8000, 'b') + "\r\n");
  const auto posted = cli::post_json(server.url(), "{}", std::chrono::minutes(10));
  ASSERT_FALSE(posted);
  EXPECT_EQ(posted.error().code, Code::kUnavailable);
}

TEST(HttpPost, OfAnAnswerThatIsNoHttpIsRefused) {
  const Trickle server("SSH-2.0-OpenSSH\r\n", "\r\n");
  EXPECT_FALSE(cli::post_json(server.url(), "{}", std::chrono::minutes(10)));
}

TEST(HttpPost, DoesNotWaitForTheBodyOfAnAnswer) {
  const Trickle server("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n", "x");
  const auto posted = cli::post_json(server.url(), "{}", std::chrono::minutes(10));
  EXPECT_TRUE(posted) << posted.error().message;
}

TEST(HttpPost, PassesOverAnswersBeforeTheFinalOne) {
  const std::string interim =
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n";
  const Trickle good(interim, "HTTP/1.1 204 No Content\r\n\r\n");
  const auto posted = cli::post_json(good.url(), "{}", std::chrono::minutes(10));
  EXPECT_TRUE(posted) << posted.error().message;
  const Trickle bad(interim + "HTTP/1.1 503 Service Unavailable\r\n\r\n", "x");
  const auto refused = cli::post_json(bad.url(), "{}", std::chrono::minutes(10));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("answered 503"), std::string::npos) << refused.error().message;
}

TEST(HttpPost, OfAnswersThatAreNeverFinalIsRefused) {
  const Trickle endless("HTTP/1.1 103 Early Hints\r\n\r\n", "HTTP/1.1 103 Early Hints\r\n\r\n");
  EXPECT_FALSE(cli::post_json(endless.url(), "{}", std::chrono::minutes(10)));
  const Trickle other("HTTP/1.1 101 Switching Protocols\r\n\r\n", "x");
  EXPECT_FALSE(cli::post_json(other.url(), "{}", std::chrono::minutes(10)));
}

TEST(HttpPost, ToNobodyFails) {
  EXPECT_EQ(cli::post_json({"127.0.0.1", "1", "/"}, "{}", std::chrono::minutes(10)).error().code,
            Code::kUnavailable);
  EXPECT_EQ(
      cli::post_json({"no-such-host.invalid", "80", "/"}, "{}", std::chrono::milliseconds(500)).error().code,
      Code::kUnavailable);
}

}  // namespace
}  // namespace gpumem::test
