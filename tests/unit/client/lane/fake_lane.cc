#include "tests/unit/client/lane/fake_lane.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <array>

#include "base/system/unix_socket.h"
#include "shm/pages.h"

namespace gpumem::client::test {

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "gpumem-client-XXXXXX").string();
  EXPECT_NE(::mkdtemp(name.data()), nullptr);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code no_matter;
  std::filesystem::remove_all(path_, no_matter);
}

UniqueFd listen_at(const std::filesystem::path& path) {
  UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  EXPECT_EQ(bind_unix(listener.get(), path), 0);
  EXPECT_EQ(::listen(listener.get(), 8), 0);
  return listener;
}

UniqueFd memory_file(const void* content, std::size_t content_size, std::size_t size) {
  UniqueFd file(::memfd_create("page", MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(size)), 0);
  EXPECT_EQ(::pwrite(file.get(), content, content_size, 0), static_cast<ssize_t>(content_size));
  return file;
}

UniqueFd broker_page_file() {
  BrokerPage page;
  initialize(page);
  return memory_file(&page, sizeof page, kSharedPageBytes);
}

UniqueFd client_page_file() {
  ClientPage page;
  initialize(page);
  return memory_file(&page, sizeof page, kSharedPageBytes);
}

UniqueFd bell_file() { return UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

Said receive_frame(int socket) {
  Said said;
  auto packet = receive_packet(socket, lane::kMostBytes, 0);
  if (!packet) return said;
  said.bytes = std::move(packet->bytes);
  if (said.bytes.empty()) return said;
  const auto frame = lane::parse(said.bytes);
  EXPECT_TRUE(frame) << to_string(frame.error());
  if (frame) said.header = frame->header;
  return said;
}

lane::Failed failed(Code code, std::string_view words) {
  lane::Failed body{};
  body.code = static_cast<std::uint64_t>(code);
  body.message = decltype(body.message)::of(words);
  return body;
}

void send_welcome(int socket, std::uint64_t request, const lane::Welcome& welcome,
                  const UniqueFd& broker_page) {
  const UniqueFd client_page = client_page_file();
  const UniqueFd doorbell = bell_file();
  send_frame(socket, welcome, request, {broker_page.get(), client_page.get(), doorbell.get()});
}

lane::Welcome welcome(const std::vector<std::string>& devices) {
  lane::Welcome body{};
  body.version = lane::kVersion;
  body.session = 7;
  body.tenant = decltype(body.tenant)::of("red");
  for (const std::string& device : devices) body.devices[body.count++] = lane::Text<48>::of(device);
  return body;
}

void greet(int socket) {
  const Said hello = receive_frame(socket);
  EXPECT_TRUE(hello.is<lane::Hello>());
  send_welcome(socket, hello.header.request, welcome());
}

FakeLane::FakeLane(Serve serve, Serve next, Serve last)
    : listener_(listen_at(socket())), thread_([this, brokers = std::array{serve, next, last}] {
        for (const Serve& one : brokers) {
          if (!one) return;
          const UniqueFd peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
          if (peer.valid()) one(peer.get());
        }
      }) {}

FakeLane::~FakeLane() {
  ::shutdown(listener_.get(), SHUT_RDWR);  // ends an accept that nobody came to
  thread_.join();
}

}  // namespace gpumem::client::test
