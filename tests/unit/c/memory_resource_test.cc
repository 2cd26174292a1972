// That gpumem::memory_resource meets what cuda::mr and RMM ask of a resource, as they have published it. The
// words here are ours, so that the test needs none of their headers; cccl_test.cc asks these.
#include "gpumem/memory_resource.h"

#include <gtest/gtest.h>

#include <cstring>

#include "gpumem/session.h"

namespace cuda::mr {
inline namespace some_version {
struct device_accessible {};
struct host_accessible {};
}  // namespace some_version
}  // namespace cuda::mr

namespace gpumem {
namespace {

/// As cuda::stream_ref and rmm::cuda_stream_view have it.
struct StreamRef {
  void* get() const { return handle; }
  void* handle = nullptr;
};
struct StreamView {
  void* value() const { return handle; }
  void* handle = nullptr;
};

template <class R>
concept SynchronousResource = std::equality_comparable<R> && std::copyable<R> &&
    requires(R& resource, void* pointer, std::size_t bytes, std::size_t alignment) {
  { resource.allocate_sync(bytes, alignment) } -> std::same_as<void*>;
  { resource.deallocate_sync(pointer, bytes, alignment) } -> std::same_as<void>;
};
template <class R, class Stream>
concept Resource = SynchronousResource<R> &&
    requires(R& resource, Stream stream, void* pointer, std::size_t bytes, std::size_t alignment) {
  { resource.allocate(stream, bytes, alignment) } -> std::same_as<void*>;
  { resource.deallocate(stream, pointer, bytes, alignment) } -> std::same_as<void>;
};
/// Before CCCL 3.1.
template <class R, class Stream>
concept AsyncResource = requires(R& resource, Stream stream, void* pointer, std::size_t bytes,
                                 std::size_t alignment) {
  { resource.allocate(bytes, alignment) } -> std::same_as<void*>;
  { resource.deallocate(pointer, bytes, alignment) } -> std::same_as<void>;
  { resource.allocate_async(bytes, alignment, stream) } -> std::same_as<void*>;
  { resource.deallocate_async(pointer, bytes, alignment, stream) } -> std::same_as<void>;
  { resource.allocate_async(bytes, stream) } -> std::same_as<void*>;
  { resource.deallocate_async(pointer, bytes, stream) } -> std::same_as<void>;
};
template <class R, class Property>
concept HasProperty = requires(const R& resource, Property property) {
  get_property(resource, property);
};

struct device_accessible {};  // another's of this name

static_assert(Resource<memory_resource, StreamRef> && Resource<memory_resource, StreamView>);
static_assert(Resource<memory_resource, void*> && Resource<memory_resource, std::nullptr_t>);
static_assert(AsyncResource<memory_resource, StreamRef> && AsyncResource<memory_resource, StreamView>);
static_assert(HasProperty<memory_resource, cuda::mr::device_accessible>);
static_assert(!HasProperty<memory_resource, cuda::mr::host_accessible>);
static_assert(!HasProperty<memory_resource, device_accessible>);
static_assert(!HasProperty<memory_resource, int>);
static_assert(std::derived_from<out_of_memory, std::bad_alloc>);
static_assert(std::is_nothrow_copy_constructible_v<out_of_memory>);

/// As RMM's resources were before they became cuda::mr's.
class OldBase {
 public:
  virtual ~OldBase() = default;
  void* allocate(std::size_t bytes, StreamView stream = {}) { return do_allocate(bytes, stream); }
  void deallocate(void* pointer, std::size_t bytes, StreamView stream = {}) {
    do_deallocate(pointer, bytes, stream);
  }
  bool is_equal(const OldBase& other) const noexcept { return do_is_equal(other); }

 private:
  virtual void* do_allocate(std::size_t bytes, StreamView stream) = 0;
  virtual void do_deallocate(void* pointer, std::size_t bytes, StreamView stream) = 0;
  virtual bool do_is_equal(const OldBase& other) const noexcept { return this == &other; }
};
static_assert(std::derived_from<device_memory_resource<OldBase, StreamView>, OldBase>);

TEST(MemoryResource, OutOfMemoryKeepsItsWordsWhenCopied) {
  auto first = std::make_unique<out_of_memory>(Error{Code::kResourceExhausted, "others hold it"});
  const out_of_memory copy(*first);
  first.reset();
  EXPECT_STREQ(copy.what(), "RESOURCE_EXHAUSTED: others hold it");
  EXPECT_EQ(copy.code(), Code::kResourceExhausted);
}

}  // namespace
}  // namespace gpumem
