#include "bench/broker/greeter.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "base/packet.h"
#include "base/system/peer_credentials.h"
#include "base/system/small_file.h"
#include "base/system/unix_socket.h"
#include "bench/must.h"
#include "bench/roles.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5; the headers of Debian 12 are older
#endif

namespace gpumem::bench {
namespace {

constexpr std::size_t kRequest = 168, kAnswer = 1264, kRecord = 157, kPage = 4096;  // as a broker's
constexpr std::size_t kDescriptors = 3;

UniqueFd seqpacket() { return UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)); }

Process start(const std::filesystem::path& path) {
  const UniqueFd socket = seqpacket();
  require(bind_unix(socket.get(), path) == 0 && ::listen(socket.get(), 8) == 0, "cannot listen");
  return Process::start_role("greet", {std::to_string(socket.get())}, socket.get());
}

UniqueFd page() {
  UniqueFd file(::memfd_create("page", MFD_CLOEXEC));
  require(::ftruncate(file.get(), kPage) == 0 && ::pwrite(file.get(), "", 1, 0) == 1, "make a page");
  return file;
}

void identify(int socket) {
  const auto peer = peer_credentials(socket);
  require(peer.has_value(), "the kernel does not tell who has connected");
  int pidfd = -1;
  socklen_t length = sizeof pidfd;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0) ::close(pidfd);
  const std::string process = "/proc/" + std::to_string(peer->pid);
  require(read_small_file(process + "/cgroup") && read_small_file(process + "/stat"), "cannot read", process);
}

void watch(int epoll, int socket) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = socket}};
  require(::epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &event) == 0, "epoll_ctl");
}

}  // namespace

Greeter::Greeter() : process_(start(socket())) { process_.await_ready(); }

Greeter::~Greeter() { process_.signal(SIGTERM); }

Clock::duration Greeter::connect() const {
  const std::filesystem::path path = socket();
  const std::string request(kRequest, '\0');
  std::array<void*, 2> pages{};
  UniqueFd connection;
  Packet answer;
  const auto took = timed([&] {
    connection = seqpacket();
    require(connect_unix(connection.get(), path) == 0, "connect");
    must(send_packet(connection.get(), request), "send");
    answer = must(receive_packet(connection.get(), kAnswer, kDescriptors), "an answer");
    for (std::size_t i = 0; i < pages.size(); ++i) {
      UniqueFd& file = answer.descriptors.at(i);
      pages[i] = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
      require(pages[i] != MAP_FAILED, "mmap");
      *static_cast<volatile char*>(pages[i]) = 1;
      file.reset();
    }
  });
  for (void* one : pages) ::munmap(one, kPage);
  return took;
}

void greet(const RoleArguments& arguments) {
  const UniqueFd listening(std::stoi(arguments.at(0)));
  const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  const UniqueFd broker_page = page(), client_page = page(), records = page();
  std::array<int, 2> bell{};
  require(::pipe2(bell.data(), O_CLOEXEC) == 0, "pipe2");
  const std::array<int, kDescriptors> given{broker_page.get(), client_page.get(), bell[0]};
  const std::string record(kRecord, '\0'), answer(kAnswer, '\0');
  watch(epoll.get(), listening.get());
  announce_ready();
  for (epoll_event event{};;) {
    if (::epoll_wait(epoll.get(), &event, 1, -1) != 1) continue;
    const int ready = event.data.fd;
    if (ready == listening.get()) {
      const int socket = ::accept4(ready, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      identify(socket);
      watch(epoll.get(), socket);
      continue;
    }
    const auto request = receive_packet(ready, kRequest, 0);
    if (!request || request->bytes.empty()) {
      ::close(ready);
      continue;
    }
    require(::pwrite(records.get(), record.data(), kRecord, 0) == kRecord, "write");
    must(send_packet(ready, answer, given), "send");
  }
}

}  // namespace gpumem::bench
