#pragma once
#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/packet.h"
#include "base/unique_fd.h"
#include "gpumem/v1/lane.pb.h"

namespace gpumem::client::test {

/// A folder of its own under the temporary folder, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// A listening SOCK_SEQPACKET socket at `path`.
UniqueFd listen_at(const std::filesystem::path& path);

/// A file of `size` bytes with the beginning `content`, without a name.
UniqueFd memory_file(const void* content, std::size_t content_size, std::size_t size);
/// Good shared pages.
UniqueFd broker_page_file();
UniqueFd client_page_file();
UniqueFd bell_file();

v1::ToBroker receive_message(int socket);
void send_message(int socket, const v1::ToClient& message, const std::vector<int>& descriptors = {});
/// Sends `message` as a good Welcome, with `broker_page`.
void send_welcome(int socket, const v1::ToClient& message, const UniqueFd& broker_page = broker_page_file());
/// A Welcome to session 7 of tenant `red`, lending `devices`.
v1::ToClient welcome(const std::vector<std::string>& devices = {});
/// Receives the Hello and answers with a good Welcome.
void greet(int socket);

/// The broker's end of one lane, played by `serve` in a thread of its own.
class FakeLane {
 public:
  explicit FakeLane(std::function<void(int socket)> serve);
  ~FakeLane();
  /// The runtime folder that clients connect in.
  std::string folder() const { return folder_.path().string(); }
  std::filesystem::path socket() const { return folder_.path() / "lane.sock"; }

 private:
  TemporaryFolder folder_;
  UniqueFd listener_;
  std::thread thread_;
};

}  // namespace gpumem::client::test
