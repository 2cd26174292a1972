#include "bench/broker/greeter.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>

#include "bench/must.h"
#include "bench/roles.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace gpumem::bench {
namespace {

constexpr std::size_t kRequest = 168, kAnswer = 1264, kRecord = 157, kPage = 4096;  // as a broker's
constexpr std::size_t kDescriptors = 3;

struct Packet {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kDescriptors * sizeof(int))> control{};
  std::array<char, kPage> bytes{};
  iovec data{bytes.data(), kAnswer};
  msghdr message{.msg_name = nullptr,
                 .msg_namelen = 0,
                 .msg_iov = &data,
                 .msg_iovlen = 1,
                 .msg_control = control.data(),
                 .msg_controllen = control.size(),
                 .msg_flags = 0};
};

// In the kernel's own namespace of names, so that nothing is left behind.
socklen_t address_of(const std::string& name, sockaddr_un& address) {
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

UniqueFd seqpacket() { return UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)); }

void read_all(const std::string& path) {
  std::array<char, 8192> text{};
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  require(::read(file.get(), text.data(), text.size()) > 0, "read", path);
}

UniqueFd page() {
  UniqueFd file(::memfd_create("page", MFD_CLOEXEC));
  require(::ftruncate(file.get(), kPage) == 0 && ::pwrite(file.get(), "", 1, 0) == 1, "make a page");
  return file;
}

void identify(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  require(::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0, "SO_PEERCRED");
  int pidfd = -1;
  length = sizeof pidfd;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0) ::close(pidfd);
  const std::string process = "/proc/" + std::to_string(peer.pid);
  read_all(process + "/cgroup");
  read_all(process + "/stat");
}

void watch(int epoll, int socket) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = socket}};
  require(::epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &event) == 0, "epoll_ctl");
}

}  // namespace

Greeter::Listening Greeter::listen() {
  Listening listening{seqpacket(), "gpumem-bench-greeter-" + std::to_string(::getpid())};
  sockaddr_un address{};
  const socklen_t length = address_of(listening.name, address);
  const int socket = listening.socket.get();
  require(::bind(socket, reinterpret_cast<sockaddr*>(&address), length) == 0 && ::listen(socket, 8) == 0,
          "cannot listen");
  return listening;
}

Greeter::Greeter() : Greeter(listen()) {}

Greeter::Greeter(Listening listening)
    : name_(std::move(listening.name)),
      process_(
          Process::start_role("greet", {std::to_string(listening.socket.get())}, listening.socket.get())) {
  process_.await_ready();
}

Greeter::~Greeter() { process_.signal(SIGTERM); }

Clock::duration Greeter::connect() const {
  sockaddr_un address{};
  const socklen_t length = address_of(name_, address);
  Packet packet;
  std::array<void*, 2> pages{};
  std::array<int, kDescriptors> got{};
  UniqueFd socket;
  const auto took = timed([&] {
    socket = seqpacket();
    require(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) == 0, "connect");
    require(::send(socket.get(), packet.bytes.data(), kRequest, MSG_NOSIGNAL) == kRequest, "send");
    pollfd answered{socket.get(), POLLIN, 0};
    require(::poll(&answered, 1, -1) == 1 && ::recvmsg(socket.get(), &packet.message, MSG_CMSG_CLOEXEC) > 0,
            "an answer");
    std::memcpy(got.data(), CMSG_DATA(CMSG_FIRSTHDR(&packet.message)), sizeof got);
    for (std::size_t i = 0; i < pages.size(); ++i) {
      pages[i] = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, got[i], 0);
      require(pages[i] != MAP_FAILED, "mmap");
      *static_cast<volatile char*>(pages[i]) = 1;
      ::close(got[i]);
    }
  });
  for (void* one : pages) ::munmap(one, kPage);
  ::close(got.back());
  return took;
}

void greet(const RoleArguments& arguments) {
  const UniqueFd listening(std::stoi(arguments.at(0)));
  const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  const UniqueFd broker_page = page(), client_page = page(), record = page();
  std::array<int, 2> bell{};
  require(::pipe2(bell.data(), O_CLOEXEC) == 0, "pipe2");
  const std::array<int, kDescriptors> given{broker_page.get(), client_page.get(), bell[0]};
  watch(epoll.get(), listening.get());
  announce_ready();
  for (epoll_event event{};;) {
    if (::epoll_wait(epoll.get(), &event, 1, -1) != 1) continue;
    if (event.data.fd == listening.get()) {
      const int socket = ::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      identify(socket);
      watch(epoll.get(), socket);
      continue;
    }
    Packet packet;
    if (::recv(event.data.fd, packet.bytes.data(), packet.bytes.size(), 0) <= 0) {
      ::close(event.data.fd);
      continue;
    }
    require(::pwrite(record.get(), packet.bytes.data(), kRecord, 0) == kRecord, "write");
    cmsghdr* header = CMSG_FIRSTHDR(&packet.message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof given);
    std::memcpy(CMSG_DATA(header), given.data(), sizeof given);
    require(::sendmsg(event.data.fd, &packet.message, MSG_NOSIGNAL) > 0, "sendmsg");
  }
}

}  // namespace gpumem::bench
