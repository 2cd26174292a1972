#pragma once
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/system/unique_fd.h"
#include "client/allocator/backing.h"

namespace gpumem::test {

struct FakeBackingOptions {
  Bytes limit = gibibytes(1);
  Bytes addresses{};  ///< zero: sixteen times the limit
  Bytes granularity = mebibytes(2);
  bool host_memory = false;   ///< mapped extents can be written and read; else addresses are numbers
  bool heeds_largest = true;  ///< extents are never larger than Request::largest; a broker need not
};

/// Memory in the broker's extents (the granularity times 1, 4, ... 1024, largest first), without a driver.
/// Every call that breaks a rule of allocator::Backing ends the program with words (broken_rule.h).
/// Threads  any.
class FakeBacking final : public allocator::Backing {
 public:
  enum class Call { kObtain, kMap, kUnmap };

  /// Is told what happens to extents, before it happens and under this backing's lock.
  class Observer {
   public:
    virtual ~Observer() = default;
    virtual void maps(allocator::Address at, const allocator::Extent& extent) = 0;
    virtual void unmaps(allocator::Address at, const allocator::Extent& extent) = 0;
  };

  explicit FakeBacking(const FakeBackingOptions& options = {});
  ~FakeBacking() override;

  /// The `nth` call from now on, the first being 1, fails with `error`, and nothing changes. `times`: it and
  /// those after it, so many in all.
  void fail(Call call, std::uint64_t nth, Error error = {Code::kInternal, "made to fail"},
            std::uint64_t times = 1);
  /// No failure is to come any more. Answers whether all that were ordered have come.
  bool heal();
  /// How much there is besides what is held: as if others held the rest. Nothing: up to the limit.
  void set_available(std::optional<Bytes> bytes);
  /// Called at the beginning of every obtain, with no lock held. May throw, as without host memory.
  void on_obtain(std::function<void(const Request&)> call);
  /// Answers what is granted of what could be, between the request's least and most; as given: all of it.
  void on_grant(std::function<Bytes(Bytes least, Bytes most)> choose);
  void observe(Observer* observer);

  std::uint64_t calls(Call call) const;
  std::uint64_t calls() const;   ///< of all three
  Bytes committed() const;       ///< held: obtained and not given back
  Bytes most_committed() const;  ///< so far
  Bytes mapped() const;
  std::size_t extents() const;            ///< held
  Bytes largest_extent() const;           ///< of the held ones
  Bytes published() const;                ///< as published last
  std::vector<Request> requests() const;  ///< so far
  /// The mapped extents that have a byte in [at, at + bytes), with their addresses.
  std::vector<std::pair<allocator::Address, allocator::Extent>> mapped_at(allocator::Address at,
                                                                          Bytes bytes) const;

  const Properties& properties() const override { return properties_; }
  Result<std::vector<allocator::Extent>, GrowError> obtain(const Request& request) override;
  Result<void> map(allocator::Address at, std::span<const allocator::Extent> extents) override;
  Result<void> unmap(allocator::Address at, Bytes bytes) override;
  void give_back(std::vector<allocator::Extent> extents) override;
  /// A handle of the first extent: its id, the range's offset in it, and the range's size.
  Result<HandleBytes> export_range(allocator::Address at, Bytes bytes, const ExportOptions& options) override;
  Result<void> allow(int /*ordinal*/) override { return {}; }
  void publish(Bytes in_use) override;

 private:
  struct Held {
    Bytes size;
    std::uint64_t offset = 0;  ///< in the file
    int mappings = 0;
  };
  struct Failure {
    std::uint64_t nth = 0;  ///< calls until it comes; zero: none is to come
    std::uint64_t times = 0;
    Error error;
  };

  void reserve();                           ///< addresses of host memory
  std::optional<Error> counted(Call call);  ///< under mutex_
  Bytes available() const;                  ///< under mutex_
  GrowError refusal(const Request& request) const;
  std::vector<allocator::Extent> make(Bytes bytes, Bytes largest);
  void check_mappable(allocator::Address at, std::span<const allocator::Extent> extents) const;
  void place(allocator::Address at, const allocator::Extent& extent);
  void displace(allocator::Address at, std::uint64_t id);

  FakeBackingOptions options_;
  allocator::Address base_;
  Properties properties_;
  UniqueFd file_;
  std::map<std::uint64_t, std::vector<std::uint64_t>> holes_;  ///< in the file: size to offsets
  std::uint64_t file_end_ = 0;

  mutable std::mutex mutex_;
  std::atomic<bool> obtaining_{false};
  std::map<std::uint64_t, Held> held_;                  ///< by id
  std::map<allocator::Address, std::uint64_t> mapped_;  ///< address to id
  std::uint64_t next_id_ = 1;
  std::array<std::uint64_t, 3> calls_{};
  std::array<Failure, 3> failures_{};
  std::optional<Bytes> available_;
  std::function<void(const Request&)> on_obtain_;
  std::function<Bytes(Bytes, Bytes)> on_grant_;
  Observer* observer_ = nullptr;
  Bytes committed_, most_committed_, mapped_bytes_, published_;
  std::vector<Request> requests_;
};

/// `backing` as an engine takes one. The engine's use of it must have ended with the engine.
std::unique_ptr<allocator::Backing> borrow(FakeBacking& backing);

}  // namespace gpumem::test
