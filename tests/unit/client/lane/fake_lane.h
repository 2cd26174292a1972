#pragma once
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/packet.h"
#include "base/system/unique_fd.h"
#include "proto/lane/frames.h"

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

/// A frame of the client's. Of no kind: the client has gone.
struct Said {
  std::string bytes;
  lane::Header header{};

  template <class Body>
  bool is() const {
    return header.kind == Body::kKind;
  }
  /// Of a kind that it is.
  template <class Body>
  Body as() const {
    auto body = lane::body_of<Body>({header, std::string_view(bytes).substr(sizeof header)});
    EXPECT_TRUE(body) << to_string(body.error());
    return body ? *body : Body{};
  }
};
/// Blocks.
Said receive_frame(int socket);

/// Sends the answer `body` to `request`.
template <class Body>
void send_frame(int socket, const Body& body, std::uint64_t request,
                const std::vector<int>& descriptors = {}) {
  EXPECT_TRUE(send_packet(socket, lane::Outgoing(body, request).bytes(), descriptors));
}
/// As a broker sends it that speaks another `version` of the lane.
template <class Body>
void send_frame_of_version(std::uint16_t version, int socket, const Body& body, std::uint64_t request) {
  std::string frame(lane::Outgoing(body, request).bytes());
  std::memcpy(frame.data() + offsetof(lane::Header, version), &version, sizeof version);
  EXPECT_TRUE(send_packet(socket, frame));
}
/// A refusal with `code` and `words`.
lane::Failed failed(Code code, std::string_view words);
/// Sends `welcome` with good pages, or with `broker_page`.
void send_welcome(int socket, std::uint64_t request, const lane::Welcome& welcome,
                  const UniqueFd& broker_page = broker_page_file());
/// A Welcome to session 7 of tenant `red`, lending `devices`.
lane::Welcome welcome(const std::vector<std::string>& devices = {});
/// Receives the Hello and answers with a good Welcome.
void greet(int socket);

/// The broker's end of one lane, played by `serve` in a thread of its own; and then those of other brokers,
/// played by `next` and `last`.
class FakeLane {
 public:
  using Serve = std::function<void(int socket)>;
  explicit FakeLane(Serve serve, Serve next = {}, Serve last = {});
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
