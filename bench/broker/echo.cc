#include "bench/broker/echo.h"

#include <sys/socket.h>

#include "bench/must.h"
#include "bench/roles.h"

namespace gpumem::bench {

Echo::Echo()
    : Echo([] {
        int ends[2];
        require(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0,
                "cannot make a pair of sockets");
        return Ends{UniqueFd(ends[0]), UniqueFd(ends[1])};
      }()) {}

Echo::Echo(Ends ends)
    : socket_(std::move(ends.own)),
      process_(Process::start_role("echo_packets", {std::to_string(ends.theirs.get())}, ends.theirs.get())) {}

Echo::~Echo() { ::shutdown(socket_.get(), SHUT_RDWR); }

Clock::duration Echo::round_trip() const {
  return timed([&] {
    char byte = 1;
    require(::send(socket_.get(), &byte, 1, MSG_NOSIGNAL) == 1 && ::recv(socket_.get(), &byte, 1, 0) == 1,
            "echo");
  });
}

Clock::duration Echo::one_way() const {
  char byte = 1;
  const auto took =
      timed([&] { require(::send(socket_.get(), &byte, 1, MSG_NOSIGNAL) == 1, "cannot send to the echo"); });
  require(::recv(socket_.get(), &byte, 1, 0) == 1, "echo");
  return took;
}

void echo_packets(const RoleArguments& arguments) {
  const UniqueFd socket(std::stoi(arguments.at(0)));
  char byte = 0;
  while (::recv(socket.get(), &byte, 1, 0) == 1 && ::send(socket.get(), &byte, 1, MSG_NOSIGNAL) == 1)
    continue;
}

}  // namespace gpumem::bench
