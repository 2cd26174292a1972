#pragma once
#include <atomic>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/system/unique_fd.h"
#include "daemon/core/words/checkpoint.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// The state for the next broker of this machine, in a file of the runtime folder. It outlives the broker's
/// process, but not the machine's run, and neither do loans. docs/journal.md has the format.
///
/// Invariant  at any moment the file is a checkpoint and the changes since, of which the last may be missing.
class Journal {
 public:
  static constexpr std::uint32_t kMostAttempts = 8;
  struct Content {
    core::Checkpoint checkpoint;
    std::vector<std::string> devices;  ///< UUIDs, by the checkpoint's places
    std::string damage;                ///< why the end of the file was left out; empty: it was not
  };
  /// Reads the journal that the previous broker left in `folder`. Nothing: no broker ran since the machine
  /// started. Counts the attempt; begin() takes it back.
  /// Errors  kFailedPrecondition: of an unknown version, with a record of an unknown kind, or kMostAttempts
  ///         have failed; kInvalidArgument: no journal; and those of reading. All name the file.
  static Result<std::optional<Content>> read(const std::filesystem::path& folder);
  /// As read(), for a reader that does not take over: counts no attempt. If the journal's broker is writing,
  /// the last change may be missing. Errors  as read().
  static Result<std::optional<Content>> look(const std::filesystem::path& folder);
  /// Takes back the attempt that read() has counted, after a failure that had nothing to do with the journal.
  static void take_attempt_back(const std::filesystem::path& folder);
  /// Begins a journal in `folder` in place of the one that is there.
  /// Errors  kResourceExhausted (no room), and those of writing.
  static Result<Journal> begin(const std::filesystem::path& folder, std::vector<std::string> devices,
                               const core::Checkpoint& checkpoint);

  /// Keeps changes in memory until write_kept() has added them to the file.
  void keep(std::span<const core::Checkpoint::Change> changes);
  /// Adds what is kept: once this returns, the next broker knows of it. Not while the journal is_behind().
  /// Errors  as begin(); the file stays what it was, and the changes are kept.
  Result<void> write_kept();
  /// keep(), then write_kept().
  Result<void> add(std::span<const core::Checkpoint::Change> changes) {
    keep(changes);
    return write_kept();
  }
  /// So much is kept that begin_to_shorten() takes it in, which bounds the memory.
  bool has_much_kept() const { return kept_.size() > kMostKept; }
  /// The file lacks changes that are not among the kept ones any more. It is to be replaced: by
  /// finish_shortening() or rewrite().
  bool is_behind() const { return !whole_.empty() || (is_shortening() && shortening_->replaces); }
  /// Whether so much of the file is obsolete that rewriting it is worthwhile.
  bool is_long() const { return size_ > kShortest && size_ > kGrowth * checkpoint_size_; }
  /// The checkpoint in place of everything that is there and kept. Errors  as begin(); the file stays what it
  /// was, and is_behind().
  /// Blocks  until it is written, and until a thread of begin_to_shorten() has ended, whose work is lost.
  Result<void> rewrite(const core::Checkpoint& checkpoint);
  /// As rewrite(), on a thread, which takes the checkpoint from the file; add() goes on meanwhile. Nothing
  /// changes before finish_shortening(). Takes in what is kept, too, if that is much or the journal is
  /// behind: then the journal is behind until the end, and changes are kept.
  void begin_to_shorten();
  bool is_shortening() const { return shortening_ != nullptr; }
  /// Puts the file of begin_to_shorten() in its place, with the changes since, but for those that are kept.
  /// False: it is not ready yet; to be called again.
  /// Errors  as rewrite(); kFailedPrecondition: the present file is damaged.
  /// Blocks  to copy 64 KiB of the latest changes.
  Result<bool> finish_shortening();

 private:
  static constexpr std::size_t kShortest = std::size_t{1} << 20;
  static constexpr std::size_t kGrowth = 4;
  static constexpr std::size_t kMostKept = std::size_t{1} << 20;

  Journal(std::filesystem::path folder, std::vector<std::string> devices)
      : folder_(std::move(folder)), devices_(std::move(devices)) {}

  std::filesystem::path folder_;
  std::vector<std::string> devices_;
  UniqueFd file_;
  std::size_t size_ = 0;             ///< bytes of complete records
  std::size_t checkpoint_size_ = 0;  ///< bytes of its checkpoint
  std::string kept_;                 ///< records to be added next
  std::string whole_;                ///< the journal up to kept_, if the file lacks some of that; else empty
  bool is_torn_ = false;             ///< the file may have more than size_
  struct Prepared {
    UniqueFd file;
    std::size_t size = 0;
    std::size_t checkpoint_size = 0;
    std::size_t contained = 0;  ///< so much of the present file is in it
  };
  struct Shortening {
    std::atomic<std::size_t> size;  ///< as size_
    bool replaces = false;          ///< the file lacks a part of `whole` and `kept`
    std::string whole{};            ///< the thread's: whole_, then what it has become with `kept`
    std::string kept{};             ///< the thread's: kept_, until it is in `whole`
    std::future<Result<Prepared>> thread{};
    std::optional<Result<Prepared>> prepared{};  ///< once the thread has ended
  };
  static Result<Prepared> prepare(const std::filesystem::path& folder, std::string_view text);
  static Result<Prepared> shorten(const std::filesystem::path& folder, int file, Shortening& shortening);
  /// Copies some of what `prepared` lacks.
  static Result<void> copy_piece(int file, std::size_t size, Prepared& prepared);
  Result<void> replace(Prepared prepared);
  bool end_at_size();

  std::unique_ptr<Shortening> shortening_;  ///< its end awaits the thread, which reads file_
};

/// Appends one change as the journal has it: its size, its checksum, its kind, its words. docs/journal.md.
void encode(const core::Checkpoint::Change& change, std::string& onto);

/// The record at the beginning of `bytes`, which loses it.
/// Errors  kUnavailable: not all of it is there; kInvalidArgument: it is damaged;
///         kFailedPrecondition: another version has written it, its kind is not known.
Result<core::Checkpoint::Change> decode(std::string_view& bytes);

}  // namespace gpumem::host
