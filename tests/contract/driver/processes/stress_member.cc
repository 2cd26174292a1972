#include "tests/contract/driver/processes/stress_member.h"

#include <poll.h>

#include <random>

#include "base/packet.h"
#include "tests/contract/driver/fixture.h"

namespace gpumem::contract {
namespace {

/// What travels with a descriptor.
struct Parcel {
  std::uint64_t size = 0;
  std::uint64_t pattern =
      0;  ///< of the first half: word i is pattern + i. The second half is for the members' marks
};

class Member {
 public:
  Member(StressBoard& board, const std::vector<Mailbox>& mailboxes, std::size_t self, std::uint64_t seed)
      : board_(board), mailboxes_(mailboxes), self_(self), random_(seed) {}

  void run() {
    driver();
    std::optional<cuda::CurrentContext> context = wait_for_context();
    while (!board_.stop) {
      ++board_.rounds;
      create_one();
      while (take_one()) {
      }
    }
  }

 private:
  // Other members may hold all memory at the moment, partly in this member's mailbox.
  std::optional<cuda::CurrentContext> wait_for_context() {
    while (!board_.stop) {
      ++board_.rounds;
      auto entered = cuda::CurrentContext::enter(driver(), device().ordinal);
      if (entered) return std::move(*entered);
      EXPECT_EQ(entered.error().code, Code::kResourceExhausted) << entered.error().message;
      pollfd mail{mailboxes_[self_].out.get(), POLLIN, 0};
      ::poll(&mail, 1, 10);
      (void)receive_packet(mailboxes_[self_].out.get(), sizeof(Parcel), 1);
    }
    return {};
  }

  void create_one() {
    const std::uint64_t size = device().granularity.count * (1 + random_() % 2);
    auto made = cuda::Allocation::create(driver(), device().ordinal, {size});
    if (!made) {
      ++board_.refused;
      ASSERT_EQ(made.error().code, Code::kResourceExhausted) << made.error().message;
      pollfd mail{mailboxes_[self_].out.get(), POLLIN, 0};
      ::poll(&mail, 1, 1);  // what comes in may be what is to be released
      return;
    }
    ++board_.created;
    const Mapped mapped = map(*made);
    const Parcel parcel{size, random_()};
    std::vector<std::uint64_t> words(size / 2 / sizeof(std::uint64_t));
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = parcel.pattern + i;
    must(calls().cuMemcpyHtoD(mapped.range.base(), words.data(), size / 2));
    check(mapped, parcel);
    send(parcel, exported(*made));
    check(mapped, parcel);
  }

  bool take_one() {
    auto packet = receive_packet(mailboxes_[self_].out.get(), sizeof(Parcel), 1);
    if (!packet || packet->descriptors.size() != 1) return false;
    ++board_.received;
    Parcel parcel;
    packet->bytes.copy(reinterpret_cast<char*>(&parcel), sizeof parcel);
    const UniqueFd descriptor = std::move(packet->descriptors.front());
    const Mapped mapped = map(import(descriptor, {parcel.size}));
    check(mapped, parcel);
    leave_mark(mapped, parcel);
    if (random_() % 3 == 0) send(parcel, descriptor);
    check(mapped, parcel);
    return !board_.stop;
  }

  // No byte of the first half is lost or foreign, whoever else has the extent.
  void check(const Mapped& mapped, const Parcel& parcel) {
    std::vector<std::uint64_t> words(parcel.size / 2 / sizeof(std::uint64_t));
    must(calls().cuMemcpyDtoH(words.data(), mapped.range.base(), parcel.size / 2));
    for (std::size_t i = 0; i < words.size(); ++i) ASSERT_EQ(words[i], parcel.pattern + i) << "word " << i;
  }

  // In the second half each member has a word of its own, which nobody else writes.
  void leave_mark(const Mapped& mapped, const Parcel& parcel) {
    const cuda::Address own = mapped.range.base() + parcel.size / 2 + self_ * sizeof(std::uint64_t);
    const std::uint64_t mark = parcel.pattern ^ self_;
    std::uint64_t seen = 0;
    must(calls().cuMemcpyHtoD(own, &mark, sizeof mark));
    must(calls().cuMemcpyDtoH(&seen, own, sizeof seen));
    ASSERT_EQ(seen, mark);
  }

  // A full mailbox is its owner's affair.
  void send(const Parcel& parcel, const UniqueFd& descriptor) {
    const int fd = descriptor.get();
    const auto sent = send_packet(mailboxes_[random_() % mailboxes_.size()].in.get(),
                                  {reinterpret_cast<const char*>(&parcel), sizeof parcel}, {&fd, 1});
    if (sent) ++board_.sent;
  }

  StressBoard& board_;
  const std::vector<Mailbox>& mailboxes_;
  const std::size_t self_;
  std::mt19937_64 random_;
};

}  // namespace

void run_stress_member(StressBoard& board, const std::vector<Mailbox>& mailboxes, std::size_t self,
                       std::uint64_t seed) {
  Member(board, mailboxes, self, seed).run();
}

}  // namespace gpumem::contract
