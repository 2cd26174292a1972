// One client process of the demo. Reads a command a line from standard input, answers each with a line of
// JSON, and lives until its input ends:
//   load FILE        grow by the file's size, copy it to the device
//   verify           read everything back, compare checksums
//   hold BYTES WAIT  grow by BYTES, waiting at most WAIT milliseconds
//   listen           from now on, hear the broker ask for memory
//   give             wait until it asks, and give it what it asks for
//   peek BYTES       past the broker: what does the driver show free, and does it give BYTES?
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include "cuda/memory.h"
#include "gpumem/session.h"

namespace {

using nlohmann::json;
namespace cuda = gpumem::cuda;

constexpr std::size_t kPiece = std::size_t{4} << 20;

/// A 64-bit checksum (FNV-1a over words) of data that comes in pieces: enough to see a wrong byte.
class Digest {
 public:
  void add(std::span<const std::byte> bytes) {
    constexpr std::uint64_t kPrime = 0x100000001b3;
    while (!bytes.empty()) {
      std::uint64_t word = 0;
      const std::size_t taken = std::min(sizeof word, bytes.size());
      std::memcpy(&word, bytes.data(), taken);
      state_ = (state_ ^ word) * kPrime;
      state_ ^= state_ >> 29;
      bytes = bytes.subspan(taken);
    }
  }
  std::uint64_t value() const { return state_; }
  bool operator==(const Digest&) const = default;

 private:
  std::uint64_t state_ = 0xcbf29ce484222325;
};

struct LoadedFile {
  std::uint64_t at = 0;
  std::uint64_t size = 0;
  Digest digest;
};

json failed(const gpumem::Error& error) {
  return {{"ok", false}, {"error", error.message}, {"code", code_name(error.code)}};
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Holds back the answer to the broker's pressure until it is told to give, and gives from then on whenever
/// it is asked. Not a real program's way: here somebody wants to look meanwhile.
class Answer {
 public:
  /// The handler's side: answers how much was given, once give() or end() was called.
  gpumem::Bytes to(const gpumem::Pressure& pressure, gpumem::Slice& slice) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return willing_ || ended_; });
    if (ended_) return {};
    const gpumem::Bytes given = slice.release(pressure.bytes).value_or(gpumem::Bytes{});
    if (!first_) first_ = {pressure.bytes, given};
    changed_.notify_all();
    return given;
  }
  /// Answers what was asked for at first, and what was given.
  std::pair<gpumem::Bytes, gpumem::Bytes> give() {
    std::unique_lock lock(mutex_);
    willing_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return first_.has_value(); });
    return *first_;
  }
  void end() {
    const std::scoped_lock lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool willing_ = false;
  bool ended_ = false;
  std::optional<std::pair<gpumem::Bytes, gpumem::Bytes>> first_;  ///< asked, given
};

class Client {
 public:
  Client(gpumem::Session session, gpumem::Slice slice, const cuda::Driver& driver)
      : session_(std::move(session)), slice_(std::move(slice)), driver_(driver) {}
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() {
    answer_.end();
    (void)session_.on_pressure({});  // the handler uses what goes before the session
  }

  json load(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    LoadedFile loaded{slice_.base() + used_, std::filesystem::file_size(path), {}};
    if (auto grown = slice_.grow({used_ + loaded.size}); !grown) return failed(grown.error());
    auto context = cuda::CurrentContext::enter(driver_, slice_.ordinal());
    if (!context) return failed(context.error());
    std::vector<char> piece(kPiece);
    for (std::uint64_t done = 0; done < loaded.size;) {
      file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
      const auto count = static_cast<std::size_t>(file.gcount());
      if (count == 0) return {{"ok", false}, {"error", path.string() + " became shorter"}};
      if (auto copied = driver_.check(driver_.api().cuMemcpyHtoD(loaded.at + done, piece.data(), count),
                                      "cuMemcpyHtoD");
          !copied) {
        return failed(copied.error());
      }
      loaded.digest.add(std::as_bytes(std::span(piece.data(), count)));
      done += count;
    }
    used_ += loaded.size;
    slice_.set_in_use({used_});
    files_.push_back(loaded);
    return {{"ok", true}, {"bytes", loaded.size}};
  }

  json verify() const {
    auto context = cuda::CurrentContext::enter(driver_, slice_.ordinal());
    if (!context) return failed(context.error());
    std::vector<std::byte> piece(kPiece);
    std::size_t equal = 0;
    for (const LoadedFile& file : files_) {
      Digest digest;
      for (std::uint64_t done = 0; done < file.size;) {
        const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), file.size - done));
        if (auto copied = driver_.check(driver_.api().cuMemcpyDtoH(piece.data(), file.at + done, count),
                                        "cuMemcpyDtoH");
            !copied) {
          return failed(copied.error());
        }
        digest.add(std::span(piece.data(), count));
        done += count;
      }
      equal += digest == file.digest ? 1 : 0;
    }
    return {{"ok", equal == files_.size()}, {"files", files_.size()}, {"equal", equal}, {"bytes", used_}};
  }

  json hold(std::uint64_t bytes, std::chrono::milliseconds wait) {
    const auto start = std::chrono::steady_clock::now();
    auto grown = slice_.grow({slice_.committed().count + bytes}, {.wait = wait});
    if (!grown) {
      json answer = failed(grown.error());
      answer["explained"] = grown.error().denial.has_value();
      return answer;
    }
    return {{"ok", true}, {"committed", grown->count}, {"seconds", seconds_since(start)}};
  }

  json listen() {
    auto listening = session_.on_pressure(
        [this](const gpumem::Pressure& pressure) { return answer_.to(pressure, slice_); });
    return listening ? json{{"ok", true}} : failed(listening.error());
  }

  json give() {
    const auto [asked, given] = answer_.give();
    return {{"ok", given >= asked}, {"asked", asked.count}, {"given", given.count}};
  }

 private:
  gpumem::Session session_;
  gpumem::Slice slice_;
  const cuda::Driver& driver_;
  std::uint64_t used_ = 0;
  std::vector<LoadedFile> files_;
  Answer answer_;
};

json peek(const cuda::Driver& driver, std::uint64_t bytes) {
  const cuda::Device& device = driver.devices().front();
  auto context = cuda::CurrentContext::enter(driver, device.ordinal);
  if (!context) return failed(context.error());
  std::size_t free = 0;
  std::size_t total = 0;
  if (auto asked = driver.check(driver.api().cuMemGetInfo(&free, &total), "cuMemGetInfo"); !asked)
    return failed(asked.error());
  auto taken = cuda::Allocation::create(driver, device.ordinal, {bytes});
  return {{"ok", true},
          {"free", free},
          {"total", total},
          {"taken", taken.has_value()},
          {"error", taken ? "" : taken.error().message}};
}

json answer(std::optional<Client>& client, const cuda::Driver& driver, const std::string& line) {
  std::istringstream words(line);
  std::string command;
  words >> command;
  std::uint64_t bytes = 0;
  if (command == "peek") {
    words >> bytes;
    return peek(driver, bytes);
  }
  if (client && command == "load") {
    std::string path;
    std::getline(words >> std::ws, path);
    return client->load(path);
  }
  if (client && command == "verify") return client->verify();
  if (client && command == "hold") {
    std::int64_t wait = 0;
    words >> bytes >> wait;
    return client->hold(bytes, std::chrono::milliseconds(wait));
  }
  if (client && command == "listen") return client->listen();
  if (client && command == "give") return client->give();
  return {{"ok", false}, {"error", "unknown command: " + line}};
}

int fail(const gpumem::Error& error) {
  std::cout << failed(error) << std::endl;
  return 1;
}

}  // namespace

// gpumem-demo-client LABEL: as a client of the broker. gpumem-demo-client --past-broker DRIVER_FOLDER:
// without it.
int main(int argc, char** argv) {
  const bool past_broker = argc == 3 && std::string(argv[1]) == "--past-broker";
  std::optional<Client> client;
  if (!past_broker) {
    auto session = gpumem::Session::connect({.label = argc > 1 ? argv[1] : ""});
    if (!session) return fail(session.error());
    auto slice = session->open_slice({.label = "demo"});
    if (!slice) return fail(slice.error());
    auto driver = cuda::Driver::current();
    if (!driver) return fail(driver.error());
    client.emplace(std::move(*session), std::move(*slice), **driver);
  }
  auto driver = past_broker ? cuda::Driver::open(argv[2]) : cuda::Driver::current();
  if (!driver) return fail(driver.error());
  std::cout << json{{"ok", true}} << std::endl;
  for (std::string line; std::getline(std::cin, line);)
    std::cout << answer(client, **driver, line) << std::endl;
  return 0;
}
