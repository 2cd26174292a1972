// The commands of an allocator. A process has one; its blocks are named by their addresses.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <random>

#include "tests/support/client/test_client.h"

namespace gpumem::test {
namespace {

using std::chrono::milliseconds;

Bytes bytes_of(const Json& command, const char* name = "bytes") {
  return {command.at(name).get<std::uint64_t>()};
}

Answer open_allocator(const Json& command, Holdings& holdings) {
  auto allocator = holdings.session->open_allocator({.device = command.value("device", std::string()),
                                                     .limit = {command.value("limit", std::uint64_t{0})},
                                                     .label = "allocator",
                                                     .wait = milliseconds(command.value("wait_ms", 0)),
                                                     .idle = milliseconds(command.value("idle_ms", 2000)),
                                                     .pageable = command.value("pageable", false)});
  if (!allocator) return failure(allocator.error());
  Answer answer;
  answer.json["limit"] = allocator->limit().count;
  holdings.allocator.emplace(std::move(*allocator));
  return answer;
}

Answer allocate(const Json& command, Holdings& holdings) {
  auto at = holdings.allocator->allocate(bytes_of(command));
  if (!at) return failure(at.error());
  Answer answer;
  answer.json["at"] = *at;
  return answer;
}

Answer free(const Json& command, Holdings& holdings) {
  auto freed = holdings.allocator->deallocate(bytes_of(command, "at").count, bytes_of(command));
  return freed ? Answer{} : failure(freed.error());
}

Answer trim(Holdings& holdings) {
  auto trimmed = holdings.allocator->trim();
  if (!trimmed) return failure(trimmed.error());
  Answer answer;
  answer.json["trimmed"] = trimmed->count;
  return answer;
}

Answer figures(Holdings& holdings) {
  auto found = holdings.allocator->statistics();
  if (!found) return failure(found.error());
  Answer answer;
  answer.json["in_use"] = found->in_use.count;
  answer.json["committed"] = found->committed.count;
  answer.json["moved"] = found->moved_extents;
  answer.json["cache_hits"] = found->cache_hits;
  return answer;
}

// Memory of the simulated device is the host's.
Answer write(const Json& command) {
  std::memset(reinterpret_cast<void*>(bytes_of(command, "at").count), command.at("value"),
              bytes_of(command).count);
  return {};
}

Answer check(const Json& command) {
  const auto* memory = reinterpret_cast<const unsigned char*>(bytes_of(command, "at").count);
  const auto value = command.at("value").get<unsigned char>();
  const auto* end = memory + bytes_of(command).count;
  const auto* other = std::find_if(memory, end, [value](unsigned char one) { return one != value; });
  if (other == end) return {};
  return failure(
      Error{Code::kInternal, "byte " + std::to_string(other - memory) + " is " + std::to_string(*other)});
}

/// A fixed program of all sizes: paints what it has, frees it all, and gives back what it can. Allocations
/// that fail are left out and counted; anything else that fails is the answer.
Answer churn(const Json& command, Holdings& holdings) {
  struct Block {
    std::uint64_t at;
    Bytes bytes;
    unsigned char value;
  };
  std::mt19937 random(command.at("seed").get<unsigned>());
  std::vector<Block> blocks;
  std::uint64_t refused = 0;
  const auto let_go = [&](std::size_t which) -> Result<void> {
    const Block one = blocks[which];
    blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(which));
    const auto* memory = reinterpret_cast<const unsigned char*>(one.at);
    if (memory[0] != one.value || memory[one.bytes.count - 1] != one.value) {
      return Error{Code::kInternal, "a block was written over"};
    }
    return holdings.allocator->deallocate(one.at, one.bytes);
  };
  for (int i = 0; i < command.at("steps").get<int>(); ++i) {
    if (!blocks.empty() && random() % 100 < 48) {
      if (auto freed = let_go(random() % blocks.size()); !freed) return failure(freed.error());
      continue;
    }
    if (random() % 50 == 0) static_cast<void>(holdings.allocator->trim(mebibytes(random() % 64)));
    const Bytes bytes{random() % (1ULL << (8 + random() % 18)) + 1};
    auto at = holdings.allocator->allocate(bytes);
    if (!at) {
      ++refused;
      continue;
    }
    blocks.push_back({*at, bytes, static_cast<unsigned char>(i)});
    auto* memory = reinterpret_cast<unsigned char*>(*at);
    memory[0] = memory[bytes.count - 1] = static_cast<unsigned char>(i);
  }
  while (!blocks.empty()) {
    if (auto freed = let_go(blocks.size() - 1); !freed) return failure(freed.error());
  }
  static_cast<void>(holdings.allocator->trim());
  Answer answer;
  answer.json["refused"] = refused;
  return answer;
}

/// A seccomp filter for all threads, as a program may install it at any time.
Answer forbid_membarrier() {
  std::array<sock_filter, 4> filter{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program{filter.size(), filter.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
      ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0) {
    return {};
  }
  return failure(Error{Code::kInternal, std::strerror(errno)});
}

Answer close(Holdings& holdings) {
  auto closed = holdings.allocator->close();
  return closed ? Answer{} : failure(closed.error());
}

}  // namespace

std::optional<Answer> allocator_command(const Json& command, Holdings& holdings) {
  const std::string what = command.at("do");
  if (what == "open_allocator") return open_allocator(command, holdings);
  if (what == "allocate") return allocate(command, holdings);
  if (what == "free") return free(command, holdings);
  if (what == "trim") return trim(holdings);
  if (what == "figures") return figures(holdings);
  if (what == "write_block") return write(command);
  if (what == "check_block") return check(command);
  if (what == "churn") return churn(command, holdings);
  if (what == "forbid_membarrier") return forbid_membarrier();
  if (what == "close_allocator") return close(holdings);
  if (what == "end_allocator") {
    holdings.allocator.reset();
    return Answer{};
  }
  return std::nullopt;
}

}  // namespace gpumem::test
