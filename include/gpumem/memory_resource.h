#pragma once
#include <concepts>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <version>
#ifdef __cpp_lib_memory_resource
#include <memory_resource>
#endif

#include "gpumem/allocator.h"

// An Allocator in the shapes that CUDA's C++ libraries know. Needs none of their headers.

namespace gpumem {

/// Returns when the work given to `stream` so far is done; null: to all blocking streams of the context.
/// Errors  kFailedPrecondition (forked, no driver; a graph is being captured), kInternal (the driver).
inline Result<void> synchronize(const Allocator& allocator, StreamHandle stream = nullptr) {
  if (allocator.c_handle() == nullptr) return detail::moved_from("allocator");
  return detail::done(gpumem_synchronize(allocator.c_handle(), stream));
}

/// Why an allocation failed, complete, with the broker's explanation: what memory resources throw.
class out_of_memory : public std::bad_alloc {
 public:
  explicit out_of_memory(const Error& error)
      : code_(error.code), words_(std::make_shared<const std::string>(to_string(error))) {}
  const char* what() const noexcept override { return words_->c_str(); }
  Code code() const noexcept { return code_; }

 private:
  Code code_;
  std::shared_ptr<const std::string> words_;  ///< so that copies do not fail
};

namespace detail {

template <class T>
concept HasGet = requires(const T& stream) {
  { stream.get() } -> std::convertible_to<const void*>;
};
template <class T>
concept HasValue = requires(const T& stream) {
  { stream.value() } -> std::convertible_to<const void*>;
};
/// A CUstream, a cudaStream_t, null, a cuda::stream_ref, an rmm::cuda_stream_view.
template <class T>
concept Stream = std::is_pointer_v<T> || std::is_null_pointer_v<T> || HasGet<T> || HasValue<T>;

template <Stream T>
StreamHandle handle_of(const T& stream) noexcept {
  if constexpr (std::is_pointer_v<T> || std::is_null_pointer_v<T>) {
    return stream;
  } else if constexpr (HasGet<T>) {
    return stream.get();
  } else {
    return stream.value();
  }
}

/// Whether `T` is cuda::mr::device_accessible, in whatever version of it: known by its name.
template <class T>
constexpr bool is_device_accessible() {
  const std::string_view name = __PRETTY_FUNCTION__;
  const std::size_t at = name.rfind("::device_accessible");
  return name.find("cuda::mr::") != std::string_view::npos && at != std::string_view::npos &&
         name.substr(at + std::string_view("::device_accessible").size()) == "]";
}

}  // namespace detail

/// An Allocator as a resource of cuda::mr and of RMM: where they take one by value or by reference, as a
/// cuda::mr::resource_ref, an rmm::device_async_resource_ref, this is one. Copies are the same resource. The
/// spellings of all their versions are here: with the stream first (cuda::mr::resource), as *_async
/// (cuda::mr::async_resource), and without a stream. Memory without a stream can be used by any stream at
/// once, which costs a synchronisation of the legacy default stream. It is given back when its work has been
/// synchronised.
/// Throws   allocating: out_of_memory, whatever the reason; std::invalid_argument: an alignment over
///          kAlignment, or no power of two. Zero bytes are null. Giving back never throws: a mistake is said
///          on standard error, and changes nothing.
/// Threads  any.
class memory_resource {
 public:
  static constexpr std::size_t kAlignment = 256;

  /// `allocator`  outlives this and all copies.
  memory_resource(Allocator& allocator) noexcept  // NOLINT(*-explicit-*)
      : allocator_(std::shared_ptr<void>(), &allocator) {}
  /// Keeps `allocator`, not null, alive.
  explicit memory_resource(std::shared_ptr<Allocator> allocator) noexcept
      : allocator_(std::move(allocator)) {}

  template <detail::Stream S>
  [[nodiscard]] void* allocate(S stream, std::size_t bytes, std::size_t alignment = kAlignment) {
    return take(bytes, alignment, detail::handle_of(stream));
  }
  template <detail::Stream S>
  void deallocate(S stream, void* pointer, std::size_t bytes, std::size_t = kAlignment) noexcept {
    give(pointer, bytes, detail::handle_of(stream));
  }

  [[nodiscard]] void* allocate_sync(std::size_t bytes, std::size_t alignment = kAlignment) {
    void* pointer = take(bytes, alignment, nullptr);
    if (pointer == nullptr) return pointer;
    const auto synchronized = synchronize(*allocator_);
    if (synchronized) return pointer;
    give(pointer, bytes, nullptr);
    throw out_of_memory(synchronized.error());
  }
  void deallocate_sync(void* pointer, std::size_t bytes, std::size_t = kAlignment) noexcept {
    give(pointer, bytes, nullptr);
  }

  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = kAlignment) {
    return allocate_sync(bytes, alignment);
  }
  void deallocate(void* pointer, std::size_t bytes, std::size_t = kAlignment) noexcept {
    deallocate_sync(pointer, bytes);
  }

  template <detail::Stream S>
  [[nodiscard]] void* allocate_async(std::size_t bytes, std::size_t alignment, S stream) {
    return take(bytes, alignment, detail::handle_of(stream));
  }
  template <detail::Stream S>
  [[nodiscard]] void* allocate_async(std::size_t bytes, S stream) {
    return take(bytes, kAlignment, detail::handle_of(stream));
  }
  template <detail::Stream S>
  void deallocate_async(void* pointer, std::size_t bytes, std::size_t, S stream) noexcept {
    give(pointer, bytes, detail::handle_of(stream));
  }
  template <detail::Stream S>
  void deallocate_async(void* pointer, std::size_t bytes, S stream) noexcept {
    give(pointer, bytes, detail::handle_of(stream));
  }

  Allocator& allocator() const noexcept { return *allocator_; }

  /// Whether what one allocated may be given back to the other.
  bool operator==(const memory_resource& other) const noexcept { return allocator_ == other.allocator_; }

  /// The device can use the memory; the host cannot.
  template <class Property>
  requires(detail::is_device_accessible<Property>()) friend constexpr void get_property(
      const memory_resource&, Property) noexcept {}

 private:
  void* take(std::size_t bytes, std::size_t alignment, StreamHandle stream) {
    if (alignment > kAlignment || (alignment & (alignment - 1)) != 0) {
      throw std::invalid_argument("gpumem: alignment " + std::to_string(alignment) +
                                  ": blocks lie at multiples of 256 bytes, and of powers of two below");
    }
    if (bytes == 0) return nullptr;
    const auto address = allocator_->allocate({bytes}, stream);
    if (!address) throw out_of_memory(address.error());
    return reinterpret_cast<void*>(*address);  // NOLINT(performance-no-int-to-ptr)
  }

  void give(void* pointer, std::size_t bytes, StreamHandle stream) noexcept {
    if (pointer == nullptr) return;
    const auto given = allocator_->deallocate(reinterpret_cast<std::uint64_t>(pointer), {bytes}, stream);
    if (!given) std::fprintf(stderr, "gpumem: memory_resource: %s\n", given.error().message.c_str());
  }

  std::shared_ptr<Allocator> allocator_;
};

/// The resource for older versions of RMM, whose resources derive from a base class:
///     gpumem::device_memory_resource<rmm::mr::device_memory_resource, rmm::cuda_stream_view>
template <class Base, class StreamView>
class device_memory_resource final : public Base {
 public:
  /// `allocator`  outlives this.
  explicit device_memory_resource(Allocator& allocator) : resource_(allocator) {}

 private:
  void* do_allocate(std::size_t bytes, StreamView stream) override {
    return resource_.allocate(stream, bytes);
  }
  void do_deallocate(void* pointer, std::size_t bytes, StreamView stream) noexcept override {
    resource_.deallocate(stream, pointer, bytes);
  }
  bool do_is_equal(const Base& other) const noexcept override {
    const auto* same = dynamic_cast<const device_memory_resource*>(&other);
    return same != nullptr && same->resource_ == resource_;
  }

  memory_resource resource_;
};

#ifdef __cpp_lib_memory_resource
/// Device memory for code that asks a std::pmr::memory_resource for bytes, on one stream. Not for the
/// standard library's containers and pools: they write, on the host, into what they get.
class pmr_resource final : public std::pmr::memory_resource {
 public:
  /// `allocator`  outlives this.
  explicit pmr_resource(Allocator& allocator, StreamHandle stream = nullptr) noexcept
      : resource_(allocator), stream_(stream) {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    return resource_.allocate(stream_, bytes, alignment);
  }
  void do_deallocate(void* pointer, std::size_t bytes, std::size_t) override {
    resource_.deallocate(stream_, pointer, bytes);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    const auto* same = dynamic_cast<const pmr_resource*>(&other);
    return same != nullptr && same->resource_ == resource_ && same->stream_ == stream_;
  }

  gpumem::memory_resource resource_;
  StreamHandle stream_;
};
#endif

}  // namespace gpumem
