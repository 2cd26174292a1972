// Good and bad scrapers: the server answers the good ones, and bounds what bad ones cost.
#include "base/http/http_server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <future>
#include <thread>

#include "base/mutex.h"
#include "base/system/unix_socket.h"
#include "daemon/core/words/refusals.h"
#include "daemon/metrics/scrapes.h"
#include "tests/support/eventually.h"
#include "tests/support/http_client.h"
#include "tests/support/temporary_folder.h"

namespace gpumem::metrics {
namespace {

using http::HttpLimits;
using http::HttpServer;
using std::chrono::hours;
using std::chrono::milliseconds;
using test::read_to_end;
using test::read_until;
using test::send_all;

constexpr HttpLimits kPatient{.request = hours(1), .idle = hours(1), .response = hours(1)};

struct HttpServerTest : testing::Test {
  explicit HttpServerTest(HttpLimits limits = kPatient, std::size_t size = 0)
      : text(body + std::string(size, 'x')) {
    Scrapes scrapes;
    scrapes.sockets.push_back(listen());
    scrapes.text = [this](const Exposition::Then& then) { then(std::make_shared<const std::string>(text)); };
    HttpServer::Options options = serving(std::move(scrapes));
    options.limits = limits;
    server = std::make_unique<HttpServer>(std::move(options));
    server->start();
  }

  UniqueFd listen() const {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    EXPECT_EQ(bind_unix(socket.get(), path()), 0);
    EXPECT_EQ(::listen(socket.get(), 4096), 0);
    return socket;
  }
  std::string path() const { return (folder / "socket").string(); }
  UniqueFd connect() const { return test::connect_to(path()); }
  std::string ask(std::string_view request) const {
    const UniqueFd socket = connect();
    send_all(socket.get(), request);
    return read_to_end(socket.get());
  }
  std::string scrape() const { return ask(test::kLastScrape); }
  static std::string status(const std::string& answer) { return answer.substr(0, answer.find('\r')); }

  const std::string body = "the metrics\n# EOF\n";
  const std::string text;
  test::TemporaryFolder folder;
  std::unique_ptr<HttpServer> server;
};

TEST_F(HttpServerTest, AnswersWithOpenMetrics) {
  const std::string answer = scrape();
  EXPECT_EQ(status(answer), "HTTP/1.1 200 OK");
  EXPECT_NE(answer.find("application/openmetrics-text; version=1.0.0; charset=utf-8"), std::string::npos);
  EXPECT_TRUE(answer.ends_with("\r\n\r\n" + body)) << answer;
}

TEST_F(HttpServerTest, AnswersOneRequestAfterTheOtherOnOneConnection) {
  const UniqueFd socket = connect();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(send_all(socket.get(), test::kScrape));
    EXPECT_EQ(status(read_until(socket.get(), "# EOF\n")), "HTTP/1.1 200 OK");
  }
}

TEST_F(HttpServerTest, AnswersRequestsThatComeTogether) {
  const UniqueFd socket = connect();
  ASSERT_TRUE(send_all(socket.get(), std::string(test::kScrape) + std::string(test::kLastScrape)));
  const std::string answers = read_to_end(socket.get());
  EXPECT_NE(answers.find("HTTP/1.1 200 OK"), answers.rfind("HTTP/1.1 200 OK"));
}

TEST_F(HttpServerTest, AnswersHeadWithoutABody) {
  const std::string answer = ask("HEAD /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_NE(answer.find("Content-Length: " + std::to_string(body.size())), std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\n")) << answer;
}

TEST_F(HttpServerTest, TakesAQueryAndOldHttp) {
  EXPECT_EQ(status(ask("GET /metrics?name=x HTTP/1.0\r\n\r\n")), "HTTP/1.1 200 OK");
}

TEST_F(HttpServerTest, RefusesUnknownPathsAndMethods) {
  EXPECT_EQ(status(ask("GET / HTTP/1.1\r\nConnection: close\r\n\r\n")), "HTTP/1.1 404 Not Found");
  EXPECT_EQ(status(ask("GET /metricsx HTTP/1.1\r\nConnection: close\r\n\r\n")), "HTTP/1.1 404 Not Found");
  EXPECT_EQ(status(ask("DELETE /metrics HTTP/1.1\r\n\r\n")), "HTTP/1.1 405 Method Not Allowed");
  EXPECT_EQ(status(ask("POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcde")),
            "HTTP/1.1 400 Bad Request");
}

TEST_F(HttpServerTest, RefusesGarbage) {
  EXPECT_EQ(status(ask("\1\2\3 garbage \xff\xfe\r\n\r\n")), "HTTP/1.1 400 Bad Request");
  EXPECT_EQ(status(scrape()), "HTTP/1.1 200 OK");
}

TEST_F(HttpServerTest, RefusesAHeaderOfAMegabyteWithoutReadingIt) {
  const UniqueFd socket = connect();
  static_cast<void>(send_all(socket.get(), "GET /metrics HTTP/1.1\r\nX: " + std::string(1 << 20, 'a')));
  const std::string answer = read_to_end(socket.get());
  EXPECT_TRUE(answer.empty() || status(answer) == "HTTP/1.1 431 Request Header Fields Too Large") << answer;
  EXPECT_EQ(status(scrape()), "HTTP/1.1 200 OK");
}

TEST_F(HttpServerTest, ServesAScraperThoughAThousandConnectionsAreHeldOpen) {
  std::vector<UniqueFd> held;
  for (int i = 0; i < 1000; ++i) held.push_back(connect());
  EXPECT_EQ(status(scrape()), "HTTP/1.1 200 OK");
  for (std::size_t i = 0; i < 1000 - HttpServer::kMostConnections; ++i)
    ASSERT_TRUE(test::is_closed_soon(held[i].get())) << i;
}

/// A server whose text takes a while.
struct WithSlowText : HttpServerTest {
  WithSlowText() {
    server.reset();
    std::filesystem::remove(path());
    Scrapes scrapes;
    scrapes.sockets.push_back(listen());
    scrapes.text = [this](const Exposition::Then& then) {
      const MutexLock lock(mutex);
      asked.push_back(then);
    };
    HttpServer::Options options = serving(std::move(scrapes));
    options.limits = kPatient;
    server = std::make_unique<HttpServer>(std::move(options));
    server->start();
  }
  std::size_t waiting() {
    const MutexLock lock(mutex);
    return asked.size();
  }
  void answer_all() {
    const MutexLock lock(mutex);
    for (const Exposition::Then& then : std::exchange(asked, {}))
      then(std::make_shared<const std::string>(text));
  }

  Mutex mutex;
  std::vector<Exposition::Then> asked;
};

TEST_F(WithSlowText, ServesAScraperThoughOthersConnectBeforeItsAnswerIsThere) {
  const UniqueFd scraper = connect();
  ASSERT_TRUE(send_all(scraper.get(), test::kLastScrape));
  ASSERT_TRUE(test::eventually([&] { return waiting() == 1; }));
  std::vector<UniqueFd> others;
  for (std::size_t i = 1; i < HttpServer::kMostConnections; ++i) {
    others.push_back(connect());
    send_all(others.back().get(), test::kScrape);
    ASSERT_TRUE(test::eventually([&] { return waiting() == i + 1; }));
  }
  for (std::size_t i = 0; i < 2 * HttpServer::kMostConnections; ++i) {
    others.push_back(connect());
    if (i % 2 == 0) send_all(others.back().get(), test::kScrape);
  }
  EXPECT_EQ(waiting(), HttpServer::kMostConnections);
  answer_all();
  EXPECT_EQ(status(read_to_end(scraper.get())), "HTTP/1.1 200 OK");
  const UniqueFd next = connect();
  ASSERT_TRUE(send_all(next.get(), test::kLastScrape));
  std::string answer;
  std::atomic<bool> is_read = false;
  std::thread reader([&] {
    answer = read_to_end(next.get());
    is_read = true;
  });
  while (!is_read) {
    answer_all();
    std::this_thread::yield();
  }
  reader.join();
  EXPECT_EQ(status(answer), "HTTP/1.1 200 OK") << "it waits until there is room";
}

TEST_F(HttpServerTest, ClosesTheConnectionThatWasIdleLongestToMakeRoom) {
  const auto& refusals = core::refusals()[static_cast<std::size_t>(core::Bound::kMetricsConnections)];
  const auto before = refusals.load();
  std::vector<UniqueFd> held;
  for (std::size_t i = 0; i < HttpServer::kMostConnections; ++i) {
    held.push_back(connect());
    send_all(held[i].get(), test::kScrape);
    read_until(held[i].get(), "# EOF\n");
  }
  EXPECT_EQ(refusals, before);
  send_all(held[0].get(), test::kScrape);  // and now the second is the one that has been quiet longest
  read_until(held[0].get(), "# EOF\n");
  EXPECT_EQ(status(scrape()), "HTTP/1.1 200 OK");
  EXPECT_TRUE(test::is_closed_soon(held[1].get()));
  EXPECT_EQ(refusals, before + 1);
  send_all(held[0].get(), test::kScrape);
  EXPECT_EQ(status(read_until(held[0].get(), "# EOF\n")), "HTTP/1.1 200 OK");
}

TEST_F(HttpServerTest, CutsItsConnectionsWhenItStops) {
  const UniqueFd socket = connect();
  send_all(socket.get(), test::kScrape);
  read_until(socket.get(), "# EOF\n");
  server->stop();
  EXPECT_EQ(read_to_end(socket.get()), "");
}

struct ImpatientForRequests : HttpServerTest {
  ImpatientForRequests()
      : HttpServerTest({.request = milliseconds(50), .idle = hours(1), .response = hours(1)}) {}
};

TEST_F(ImpatientForRequests, EndsAConnectionThatSaysNothingOrNotEnough) {
  const UniqueFd silent = connect(), slow = connect();
  send_all(slow.get(), "GET /metrics HT");
  EXPECT_EQ(read_to_end(silent.get()), "");
  EXPECT_EQ(read_to_end(slow.get()), "");
}

struct ImpatientBetweenRequests : HttpServerTest {
  ImpatientBetweenRequests()
      : HttpServerTest({.request = hours(1), .idle = milliseconds(50), .response = hours(1)}) {}
};

TEST_F(ImpatientBetweenRequests, EndsAConnectionThatAsksForNothingMore) {
  const UniqueFd socket = connect();
  send_all(socket.get(), test::kScrape);
  EXPECT_TRUE(read_to_end(socket.get()).ends_with(body));
}

// A text that no socket takes whole, to readers that do not read.
struct ImpatientForReaders : HttpServerTest {
  ImpatientForReaders()
      : HttpServerTest({.request = hours(1), .idle = hours(1), .response = milliseconds(50)}, 8 << 20) {}
};

TEST_F(ImpatientForReaders, EndsAConnectionThatDoesNotRead) {
  const UniqueFd lazy = connect();
  send_all(lazy.get(), test::kScrape);
  EXPECT_TRUE(test::eventually([&] { return !send_all(lazy.get(), "x"); })) << "the other end is gone";
  EXPECT_LT(read_to_end(lazy.get()).size(), text.size());
}

struct WithLongText : HttpServerTest {
  WithLongText() : HttpServerTest(kPatient, 8 << 20) {}
};

TEST_F(WithLongText, ServesAScraperWhileOthersDoNotRead) {
  std::vector<UniqueFd> lazy;
  for (std::size_t i = 0; i < 4 * HttpServer::kMostConnections; ++i) {
    lazy.push_back(connect());
    send_all(lazy.back().get(), test::kScrape);
  }
  EXPECT_GT(scrape().size(), text.size());
}

// A stream that says its text again and again.
struct WithStream : HttpServerTest {
  WithStream() {
    server.reset();
    std::filesystem::remove(path());
    HttpServer::Options options;
    options.sockets.push_back(listen());
    options.limits = kPatient;
    options.handle = [this](const http::Request&, const HttpServer::Respond& respond) {
      respond(
          {.stream = [this](std::shared_ptr<http::Stream> opened) { begun.set_value(std::move(opened)); }});
    };
    server = std::make_unique<HttpServer>(std::move(options));
    server->start();
    reader = connect();
    send_all(reader.get(), test::kScrape);
    read_until(reader.get(), "\r\n\r\n");
    stream = begun.get_future().get();
  }
  UniqueFd reader;
  std::promise<std::shared_ptr<http::Stream>> begun;
  std::shared_ptr<http::Stream> stream;
};

TEST_F(WithStream, SendsPieceByPieceUntilItsReaderLeaves) {
  for (const char* piece : {"one", "two"}) {
    stream->send(std::make_shared<const std::string>(piece));
    EXPECT_EQ(read_until(reader.get(), piece), piece);
  }
  EXPECT_FALSE(stream->is_over());
  reader.reset();
  EXPECT_TRUE(test::eventually([&] { return stream->is_over(); }));
}

TEST_F(WithStream, CutsOffAReaderThatDoesNotRead) {
  const auto piece = std::make_shared<const std::string>(1 << 20, 'x');
  for (std::size_t i = 0; i < 2 * http::Stream::kMostQueued; ++i) stream->send(piece);
  EXPECT_TRUE(test::eventually([&] { return stream->is_over(); }));
  EXPECT_TRUE(test::eventually([&] { return piece.use_count() == 1; })) << "nothing is kept for it";
}

TEST(HttpServerWithoutDescriptors, RefusesConnectionsThatTakeAReservedDescriptor) {
  const test::TemporaryFolder folder;
  const std::string path = (folder / "socket").string();
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind_unix(socket.get(), path), 0);
  ASSERT_EQ(::listen(socket.get(), 16), 0);
  Scrapes scrapes;
  scrapes.sockets.push_back(std::move(socket));
  scrapes.text = [](const Exposition::Then& then) { then(nullptr); };
  scrapes.is_reserved = [](int) { return true; };
  HttpServer server(serving(std::move(scrapes)));
  server.start();
  EXPECT_TRUE(test::is_closed_soon(test::connect_to(path).get()));
}

}  // namespace
}  // namespace gpumem::metrics
