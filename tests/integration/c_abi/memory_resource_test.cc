// C++'s resources on an allocator.
#include "gpumem/memory_resource.h"

#include <gtest/gtest.h>

#include "gpumem/session.h"
#include "tests/integration/c_abi/broker.h"

namespace gpumem::test {
namespace {

class Resources : public testing::Test {
 protected:
  Resources() {
    auto session = Session::connect({.runtime_folder = broker().folder()});
    EXPECT_TRUE(session) << to_string(session.error());
    auto allocator = session->open_allocator();
    EXPECT_TRUE(allocator) << to_string(allocator.error());
    allocator_.emplace(std::move(*allocator));
  }
  ~Resources() override {
    EXPECT_TRUE(allocator_->close()) << "all has been given back";
    allocator_.reset();
    EXPECT_TRUE(eventually([] { return broker().at_rest(); })) << broker().unrest();
  }
  Bytes in_use() { return allocator_->statistics()->in_use; }

  std::optional<Allocator> allocator_;
};

TEST_F(Resources, GiveAndTakeInEverySpelling) {
  memory_resource resource(*allocator_);
  void* const stream = nullptr;
  void* blocks[] = {resource.allocate(stream, 1000), resource.allocate_async(1000, stream),
                    resource.allocate_async(1000, 256, stream), resource.allocate_sync(1000),
                    resource.allocate(std::size_t{1000})};
  EXPECT_EQ(in_use().count, 5000U);
  for (void* block : blocks) *static_cast<volatile char*>(block) = 1;
  resource.deallocate(stream, blocks[0], 1000);
  resource.deallocate_async(blocks[1], 1000, stream);
  resource.deallocate_async(blocks[2], 1000, 256, stream);
  resource.deallocate_sync(blocks[3], 1000);
  resource.deallocate(blocks[4], 1000);
  EXPECT_EQ(in_use().count, 0U);
}

TEST_F(Resources, FailuresAreBadAllocWithTheBrokersWords) {
  memory_resource resource(*allocator_);
  ClientProcess neighbour(broker().folder(), ClientOptions{});
  EXPECT_TRUE(succeeded(neighbour.connect()));
  EXPECT_TRUE(succeeded(neighbour.open("a")));
  EXPECT_TRUE(succeeded(neighbour.grow("a", mebibytes(200))));
  try {
    (void)resource.allocate(nullptr, mebibytes(100).count);
    FAIL() << "there is no memory";
  } catch (const std::bad_alloc& error) {
    EXPECT_NE(std::string(error.what()).find("224MiB"), std::string::npos) << error.what();
    EXPECT_EQ(dynamic_cast<const out_of_memory&>(error).code(), Code::kResourceExhausted);
  }
  EXPECT_EQ(neighbour.leave(), 0);
}

TEST_F(Resources, OddRequestsAreAnswered) {
  memory_resource resource(*allocator_);
  EXPECT_EQ(resource.allocate(nullptr, 0), nullptr);
  resource.deallocate(nullptr, nullptr, 0);
  for (const std::size_t alignment : {3U, 512U}) {
    EXPECT_THROW((void)resource.allocate(nullptr, 1, alignment), std::invalid_argument) << alignment;
  }
  testing::internal::CaptureStderr();
  int of_the_host = 0;
  resource.deallocate(nullptr, &of_the_host, 4);
  EXPECT_NE(testing::internal::GetCapturedStderr(), "");
}

TEST_F(Resources, AreEqualWhereTheyShareAnAllocator) {
  memory_resource one(*allocator_);
  const memory_resource copy = one;
  EXPECT_EQ(one, copy);
  auto session = Session::connect({.runtime_folder = broker().folder()});
  ASSERT_TRUE(session);
  auto other = session->open_allocator();
  ASSERT_TRUE(other);
  const auto shared = std::make_shared<Allocator>(std::move(*other));
  EXPECT_NE(one, memory_resource(shared));
  EXPECT_EQ(memory_resource(shared), memory_resource(shared));
  const pmr_resource standard(*allocator_);
  EXPECT_TRUE(standard.is_equal(pmr_resource(*allocator_)));
  EXPECT_FALSE(standard.is_equal(pmr_resource(*shared)));
}

TEST_F(Resources, ServeWhoAsksStandardResourcesForBytes) {
  pmr_resource resource(*allocator_);
  std::pmr::polymorphic_allocator<> user(&resource);
  void* block = user.allocate_bytes(1 << 20, 256);
  EXPECT_EQ(in_use().count, 1U << 20);
  user.deallocate_bytes(block, 1 << 20, 256);
  EXPECT_EQ(in_use().count, 0U);
}

}  // namespace
}  // namespace gpumem::test
