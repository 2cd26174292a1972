#pragma once
#include <memory>
#include <span>
#include <utility>
#include <variant>

#include "client/session/connection.h"
#include "client/session/host_pages.h"
#include "cuda/memory.h"

// Memory of a slice or an import at addresses of this process: of a device, or of the host store.

namespace gpumem::client {

/// Owns addresses of this process, for memory of the host store. A forked child has what is mapped there.
class HostAddresses {
 public:
  /// Errors  kResourceExhausted.
  static Result<HostAddresses> reserve(Bytes size, Bytes alignment);

  HostAddresses(HostAddresses&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), size_(other.size_) {}
  HostAddresses& operator=(HostAddresses&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~HostAddresses();

  cuda::Address base() const { return reinterpret_cast<cuda::Address>(base_); }
  Bytes size() const { return size_; }

 private:
  HostAddresses(char* base, Bytes size) : base_(base), size_(size) {}

  char* base_;
  Bytes size_;
};

/// Owns a range of addresses of either kind.
class Addresses {
 public:
  Addresses() = default;
  /// Errors  kResourceExhausted: the address space is used up.
  static Result<Addresses> reserve(const SharedDevice& device, Bytes size, Bytes alignment);

  cuda::Address base() const {
    return std::visit([](const auto& reserved) { return reserved.base(); }, reserved_);
  }
  Bytes size() const {
    return std::visit([](const auto& reserved) { return reserved.size(); }, reserved_);
  }

 private:
  template <class Reserved>
  explicit Addresses(Reserved reserved) : reserved_(std::move(reserved)) {}
  std::variant<cuda::Reservation, HostAddresses> reserved_;
};

/// Owns the mapping of files of the host store, one after the other, in HostAddresses. A forked child
/// inherits it.
class HostMapping {
 public:
  struct Extent {
    int file = -1;
    Bytes size;
  };
  struct Manner {
    cuda::Access access = cuda::Access::kReadWrite;
    bool is_new = false;                   ///< its pages are to be faulted in
    const cuda::Driver* pinned = nullptr;  ///< the driver that pins it; null: it is not pinned
  };
  /// All or nothing. Memory that is mapped for reading is not pinned where the driver does not allow that.
  /// Errors  kResourceExhausted; kFailedPrecondition: the process has no context to pin in; the driver's.
  static Result<HostMapping> create(cuda::Address at, std::span<const Extent> extents, const Manner& manner);

  HostMapping(HostMapping&& other) noexcept
      : at_(other.at_), size_(std::exchange(other.size_, {})), pins_(std::move(other.pins_)) {}
  HostMapping& operator=(HostMapping&& other) noexcept {
    std::swap(at_, other.at_);
    std::swap(size_, other.size_);
    std::swap(pins_, other.pins_);
    return *this;
  }
  ~HostMapping() { static_cast<void>(truncate(at_)); }

  /// Unmaps everything from `from` on. The addresses stay reserved.
  Result<void> truncate(cuda::Address from);
  cuda::Address at() const { return at_; }
  cuda::Address end() const { return at_ + size_.count; }
  Bytes size() const { return size_; }
  bool is_pinned() const { return pins_ != nullptr; }

 private:
  explicit HostMapping(cuda::Address at) : at_(at) {}
  Result<void> add(const Extent& extent, const Manner& manner);
  Result<void> pin(std::span<const Extent> extents, const Manner& manner);

  cuda::Address at_;
  Bytes size_;
  std::unique_ptr<HostPins> pins_;  ///< null: it is not pinned
};

/// Owns a mapping of either kind.
class Mapping {
 public:
  Mapping() = default;
  explicit Mapping(cuda::Mapping mapped) : mapped_(std::move(mapped)) {}
  explicit Mapping(HostMapping mapped) : mapped_(std::move(mapped)) {}

  /// As cuda::Mapping::truncate.
  Result<void> truncate(cuda::Address from) {
    return std::visit([&](auto& mapped) { return mapped.truncate(from); }, mapped_);
  }
  cuda::Address at() const {
    return std::visit([](const auto& mapped) { return mapped.at(); }, mapped_);
  }
  cuda::Address end() const { return at() + size().count; }
  Bytes size() const {
    return std::visit([](const auto& mapped) { return mapped.size(); }, mapped_);
  }
  /// Of the host store.
  bool is_pinned() const {
    const auto* const host = std::get_if<HostMapping>(&mapped_);
    return host != nullptr && host->is_pinned();
  }

 private:
  std::variant<cuda::Mapping, HostMapping> mapped_;
};

/// Makes whole extents in [at, at + size) readable only. Errors  the driver's, the system's.
Result<void> make_read_only(const SharedDevice& device, cuda::Address at, Bytes size);

}  // namespace gpumem::client
