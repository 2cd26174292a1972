// Offers: whose they are, and that none is left holding memory.
#include "client/lane.h"

#include <gtest/gtest.h>

#include <future>

#include "tests/unit/client/fake_lane.h"

namespace gpumem::client::test {
namespace {

constexpr std::chrono::milliseconds kTimeout{5000};

v1::ToClient offer(std::uint64_t grant, const std::vector<std::uint64_t>& leases) {
  v1::ToClient message;
  message.mutable_offer()->set_grant(grant);
  message.mutable_offer()->mutable_leases()->Add(leases.begin(), leases.end());
  return message;
}

std::unique_ptr<Lane> connected(const FakeLane& fake, std::chrono::milliseconds timeout = kTimeout) {
  auto lane = Lane::connect(fake.socket(), timeout);
  EXPECT_TRUE(lane);
  EXPECT_TRUE((*lane)->greet(""));
  return std::move(*lane);
}

TEST(Lane, PutsOtherGrantsOffersAside) {
  FakeLane fake([](int socket) {
    greet(socket);
    const UniqueFd file = client_page_file();
    send_message(socket, offer(1, {10}), {file.get()});
    send_message(socket, offer(2, {20, 21}), {file.get(), file.get()});
    send_message(socket, offer(1, {11}), {file.get()});
  });
  const auto lane = connected(fake);
  auto second = lane->receive_offer(2);
  ASSERT_TRUE(second) << to_string(second.error());
  EXPECT_EQ(second->leases, (std::vector<std::uint64_t>{20, 21}));
  EXPECT_EQ(second->descriptors.size(), 2U);
  EXPECT_EQ(lane->receive_offer(1)->leases, std::vector<std::uint64_t>{10});
  EXPECT_EQ(lane->receive_offer(1)->leases, std::vector<std::uint64_t>{11});
}

TEST(Lane, RejectsAnOfferWithFewerDescriptorsThanLeases) {
  FakeLane fake([](int socket) {
    greet(socket);
    const UniqueFd file = client_page_file();
    send_message(socket, offer(1, {10, 11}), {file.get()});
  });
  EXPECT_EQ(connected(fake)->receive_offer(1).error().code, Code::kInternal);
}

TEST(Lane, WaitsForAnOfferOnlySoLong) {
  std::promise<void> over;
  FakeLane fake([&](int socket) {
    greet(socket);
    over.get_future().wait();
  });
  EXPECT_EQ(connected(fake, std::chrono::milliseconds(20))->receive_offer(1).error().code,
            Code::kDeadlineExceeded);
  over.set_value();
}

// A pipe's reader sees the end once nobody holds the writing end: neither the lane nor its queue.
TEST(Lane, DropsTheOffersOfAGrowthThatFailed) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  std::promise<void> sent;
  FakeLane fake([&](int socket) {
    greet(socket);
    send_message(socket, offer(9, {90}), {writer.get()});
    writer.reset();
    sent.set_value();
    receive_message(socket);
  });
  const auto lane = connected(fake);
  {
    const Lane::Growth failed(*lane);
    sent.get_future().wait();
  }
  char byte = 0;
  EXPECT_EQ(::read(reader.get(), &byte, 1), 0);
  lane->goodbye();
}

TEST(Lane, KeepsOffersWhileAnotherGrowthMayWantThem) {
  FakeLane fake([](int socket) {
    greet(socket);
    const UniqueFd file = client_page_file();
    send_message(socket, offer(2, {20}), {file.get()});
    send_message(socket, offer(1, {10}), {file.get()});
    receive_message(socket);
  });
  const auto lane = connected(fake);
  Lane::Growth wanting(*lane);
  {
    const Lane::Growth failed(*lane);
    ASSERT_TRUE(lane->receive_offer(1));
  }
  EXPECT_TRUE(lane->receive_offer(2));
  wanting.succeeded();
  lane->goodbye();
}

}  // namespace
}  // namespace gpumem::client::test
