#include "daemon/host/state/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/crash_point.h"
#include "base/system/files.h"
#include "base/thread_guards.h"

namespace gpumem::host {
namespace {

constexpr const char* kJournalName = "journal";
constexpr const char* kPreparedJournal = "journal.new";
constexpr std::string_view kJournalMagic = "GMEMJRNL";
constexpr std::uint32_t kJournalVersion = 1;
constexpr std::size_t kBootIdBytes = 36;
constexpr std::uint32_t kMostDevices = 1024;

struct FileHeader {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t devices;  // so many DeviceEntries follow
  std::array<char, kBootIdBytes> boot;
  std::uint32_t attempts;  // of brokers to take over from it
};
struct DeviceEntry {
  std::array<char, 48> uuid;  // padded with zeros
  std::uint64_t unused;
};
static_assert(sizeof(FileHeader) == 56 && sizeof(DeviceEntry) == 56);

// Names this run of the machine.
std::array<char, kBootIdBytes> boot_id() {
  std::array<char, kBootIdBytes> id{};
  if (const auto text = read_text("/proc/sys/kernel/random/boot_id"))
    std::memcpy(id.data(), text->data(), std::min(text->size(), id.size()));
  return id;
}

std::string header_of(const std::vector<std::string>& devices) {
  FileHeader header{{}, kJournalVersion, static_cast<std::uint32_t>(devices.size()), boot_id(), 0};
  std::memcpy(header.magic.data(), kJournalMagic.data(), kJournalMagic.size());
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  for (const std::string& uuid : devices) {
    DeviceEntry entry{};
    std::memcpy(entry.uuid.data(), uuid.data(), std::min(uuid.size(), entry.uuid.size()));
    bytes.append(reinterpret_cast<const char*>(&entry), sizeof entry);
  }
  return bytes;
}

Error no_journal(const std::string& why) { return {Code::kInvalidArgument, "it is no journal: " + why}; }

// The header, which `bytes` loses with the devices. Nothing: of another run of the machine.
Result<std::optional<std::vector<std::string>>> take_header(std::string_view& bytes) {
  FileHeader header{};
  if (bytes.size() < sizeof header) return no_journal("it is too short");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::string_view(header.magic.data(), header.magic.size()) != kJournalMagic)
    return no_journal("another begins so");
  if (header.version != kJournalVersion) {
    return Error{Code::kFailedPrecondition, "it is a journal of version " + std::to_string(header.version) +
                                                "; this broker reads version " +
                                                std::to_string(kJournalVersion)};
  }
  if (header.attempts >= Journal::kMostAttempts)
    return Error{Code::kFailedPrecondition,
                 std::to_string(header.attempts) + " brokers have ended while they took over by it"};
  bytes.remove_prefix(sizeof header);
  if (header.devices > kMostDevices || bytes.size() < header.devices * sizeof(DeviceEntry))
    return no_journal("its devices are missing");
  std::vector<std::string> devices;
  for (std::uint32_t i = 0; i < header.devices; ++i) {
    DeviceEntry entry{};
    std::memcpy(&entry, bytes.data(), sizeof entry);
    devices.emplace_back(entry.uuid.data(), ::strnlen(entry.uuid.data(), entry.uuid.size()));
    bytes.remove_prefix(sizeof entry);
  }
  if (header.boot != boot_id()) return std::optional<std::vector<std::string>>();
  return std::optional(std::move(devices));
}

// More than any device has; sums of it do not wrap.
constexpr Bytes kMostOfLease = gibibytes(1 << 20);

// A change that cannot be is as damaged as one with a wrong checksum.
bool fits(const core::Checkpoint::Change& change, std::size_t devices) {
  if (const auto* lease = std::get_if<core::Checkpoint::Lease>(&change))
    if (lease->size.is_zero() || lease->size > kMostOfLease) return false;
  if (const auto* job = std::get_if<core::Checkpoint::CommandJob>(&change))
    return job->limits.size() <= devices && job->reservations.size() <= devices;
  return std::visit(
      [&](const auto& one) {
        if constexpr (requires { one.device; }) return one.device < devices;
        return true;
      },
      change);
}

/// Errors  kFailedPrecondition: another version has written a record.
Result<Journal::Content> parse(std::string_view bytes, std::vector<std::string> devices) {
  Journal::Content content{{}, std::move(devices), {}};
  while (!bytes.empty()) {
    const std::size_t left = bytes.size();
    auto change = decode(bytes);
    if (change && fits(*change, content.devices.size())) {
      content.checkpoint.apply(*change);
      continue;
    }
    if (!change && change.error().code == Code::kFailedPrecondition) return change.error();
    content.damage =
        (change ? "a record is of a device that there is not, or of no bytes" : change.error().message) +
        "; the last " + std::to_string(left) + " bytes are left out";
    break;
  }
  return content;
}

Error damaged(const std::string& why) { return {Code::kFailedPrecondition, why}; }

/// `size` bytes of `file` from `begin` on. Errors  kFailedPrecondition: they are not there; those of reading.
Result<std::string> read_at(int file, std::size_t begin, std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t done = 0; done < size;) {
    const ssize_t read = ::pread(file, text.data() + done, size - done, static_cast<off_t>(begin + done));
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) return errno_error(errno, "cannot read the journal");
    if (read == 0) return damaged("its end is missing");
    done += static_cast<std::size_t>(read);
  }
  return text;
}

// A journal that a broker cannot live with must not end every next one.
Result<void> count_attempts(const std::filesystem::path& file, const std::string& bytes, int change) {
  FileHeader header{};
  std::memcpy(&header, bytes.data(), sizeof header);
  if (change < 0 && header.attempts == 0) return {};
  header.attempts += static_cast<std::uint32_t>(change);
  const UniqueFd opened(::open(file.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!opened.valid() || ::pwrite(opened.get(), &header, sizeof header, 0) != sizeof header)
    return errno_error(errno, "cannot write " + file.string());
  return {};
}

// `before_parsing`  what there is to do with the file and its text once it is known to be of this run.
template <class Step>
Result<std::optional<Journal::Content>> load(const std::filesystem::path& folder, Step before_parsing) {
  const std::filesystem::path file = folder / kJournalName;
  const auto text = read_text(file);
  if (!text && text.error().code == Code::kNotFound) return std::optional<Journal::Content>();
  if (!text) return text.error();
  std::string_view bytes = *text;
  auto devices = take_header(bytes);
  if (!devices) return devices.error().in(file.string());
  if (!*devices) return std::optional<Journal::Content>();
  if (auto done = before_parsing(file, *text); !done) return done.error();
  auto content = parse(bytes, std::move(**devices));
  if (!content) return content.error().in(file.string());
  return std::optional(std::move(*content));
}

Result<void> no_room() { return errno_error(ENOSPC, "cannot write"); }

constexpr std::size_t kCopiedAtOnce = std::size_t{1} << 16;

std::string text_of(const std::vector<std::string>& devices, const core::Checkpoint& checkpoint) {
  std::string text = header_of(devices);
  for (const core::Checkpoint::Change& change : checkpoint.changes()) encode(change, text);
  return text;
}

// What a journal says. Errors  kFailedPrecondition: it is damaged.
Result<Journal::Content> content_of(std::string_view bytes) {
  auto devices = take_header(bytes);
  if (!devices || !*devices) return damaged("its header is wrong");
  auto content = parse(bytes, std::move(**devices));
  if (!content) return damaged(content.error().message);
  if (!content->damage.empty()) return damaged(content->damage);
  return content;
}

}  // namespace

Result<std::optional<Journal::Content>> Journal::read(const std::filesystem::path& folder) {
  return load(folder, [](const std::filesystem::path& file, const std::string& text) -> Result<void> {
    if (auto counted = count_attempts(file, text, 1); !counted) return counted.error();
    crash_at(CrashPoint::kRestartCounted);
    return {};
  });
}

Result<std::optional<Journal::Content>> Journal::look(const std::filesystem::path& folder) {
  return load(folder, [](const std::filesystem::path&, const std::string&) { return Result<void>(); });
}

void Journal::take_attempt_back(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kJournalName;
  const auto text = read_text(file);
  if (text && text->size() >= sizeof(FileHeader) && text->starts_with(kJournalMagic))
    static_cast<void>(count_attempts(file, *text, -1));
}

Result<Journal> Journal::begin(const std::filesystem::path& folder, std::vector<std::string> devices,
                               const core::Checkpoint& checkpoint) {
  Journal journal(folder, std::move(devices));
  const auto written = journal.rewrite(checkpoint);
  if (written) return journal;
  if (written.error().code != Code::kResourceExhausted) return written.error();
  return Error{written.error().code, written.error().message + "; make room in " + folder.string() +
                                         " and start the broker again: clients keep their memory meanwhile"};
}

void Journal::keep(std::span<const core::Checkpoint::Change> changes) {
  for (const core::Checkpoint::Change& change : changes) encode(change, kept_);
}

// A partly written change is truncated, because nothing behind it could be read.
bool Journal::end_at_size() {
  const auto end = static_cast<off_t>(size_);
  is_torn_ = ::ftruncate(file_.get(), end) != 0 || ::lseek(file_.get(), end, SEEK_SET) != end;
  return !is_torn_;
}

Result<void> Journal::write_kept() {
  if (is_torn_ && !end_at_size())
    return errno_error(errno, "cannot truncate").in((folder_ / kJournalName).string());
  const auto written = fails_at(CrashPoint::kJournalWrite) ? no_room() : write_all(file_.get(), kept_);
  if (!written) {
    end_at_size();
    return written.error().in((folder_ / kJournalName).string());
  }
  size_ += kept_.size();
  kept_.clear();
  if (is_shortening()) shortening_->size = size_;
  crash_at(CrashPoint::kJournalWritten);
  return {};
}

Result<Journal::Prepared> Journal::prepare(const std::filesystem::path& folder, std::string_view text) {
  const std::filesystem::path prepared = folder / kPreparedJournal;
  UniqueFd file(::open(prepared.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return errno_error(errno, "cannot make " + prepared.string());
  const auto written = fails_at(CrashPoint::kJournalRewrite) ? no_room() : write_all(file.get(), text);
  crash_at(CrashPoint::kJournalPrepared);
  if (written) return Prepared{std::move(file), text.size(), text.size(), 0};
  ::unlink(prepared.c_str());
  return written.error().in(prepared.string());
}

Result<void> Journal::replace(Prepared prepared) {
  const std::filesystem::path name = folder_ / kPreparedJournal;
  if (::rename(name.c_str(), (folder_ / kJournalName).c_str()) != 0) {
    const Error error = errno_error(errno, "cannot put the new journal in its place");
    ::unlink(name.c_str());
    return error.in(name.string());
  }
  crash_at(CrashPoint::kJournalRenamed);
  file_ = std::move(prepared.file);
  size_ = prepared.size;
  checkpoint_size_ = prepared.checkpoint_size;
  is_torn_ = false;
  whole_ = {};
  return {};
}

Result<void> Journal::rewrite(const core::Checkpoint& checkpoint) {
  shortening_.reset();  // the thread writes the same file
  whole_ = text_of(devices_, checkpoint);
  kept_.clear();
  auto prepared = prepare(folder_, whole_);
  return prepared ? replace(std::move(*prepared)) : prepared.error();
}

// The file says all that the broker would, but for what is kept: it is the checkpoint that the next broker
// starts from. To copy the broker's tables would hold up the thread that decides.
Result<Journal::Prepared> Journal::shorten(const std::filesystem::path& folder, int file,
                                           Shortening& shortening) {
  const std::size_t begin = shortening.size;
  auto text = shortening.whole.empty() ? read_at(file, 0, begin) : shortening.whole;
  if (!text) return text.error();
  auto content = content_of(*text + shortening.kept);
  if (!content) return content.error();
  shortening.whole = text_of(content->devices, content->checkpoint);
  shortening.kept.clear();
  auto prepared = prepare(folder, shortening.whole);
  if (!prepared) return prepared;
  prepared->contained = begin;
  while (shortening.size - prepared->contained > kCopiedAtOnce)
    if (auto written = copy_piece(file, shortening.size, *prepared); !written) return written.error();
  return prepared;
}

Result<void> Journal::copy_piece(int file, std::size_t size, Prepared& prepared) {
  auto text = read_at(file, prepared.contained, std::min(kCopiedAtOnce, size - prepared.contained));
  if (!text) return text.error();
  if (auto written = write_all(prepared.file.get(), *text); !written) return written.error();
  prepared.contained += text->size();
  prepared.size += text->size();
  return {};
}

void Journal::begin_to_shorten() {
  shortening_.reset(new Shortening{size_, !whole_.empty() || has_much_kept()});
  if (shortening_->replaces) {
    shortening_->whole = std::exchange(whole_, {});
    shortening_->kept = std::exchange(kept_, {});
  }
  const SignalsBlocked blocked;
  try {
    shortening_->thread = std::async(
        std::launch::async,
        [folder = folder_, file = file_.get(), &own = *shortening_] { return shorten(folder, file, own); });
  } catch (const std::system_error& error) {  // as many threads as there may be
    std::promise<Result<Prepared>> none;
    none.set_value(Error{Code::kResourceExhausted, std::string("cannot start a thread: ") + error.what()});
    shortening_->thread = none.get_future();
  }
}

Result<bool> Journal::finish_shortening() {
  std::optional<Result<Prepared>>& prepared = shortening_->prepared;
  if (!prepared) {
    if (shortening_->thread.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
    prepared = shortening_->thread.get();
  }
  auto done = *prepared ? copy_piece(file_.get(), size_, **prepared) : Result<void>(prepared->error());
  if (done && (*prepared)->contained < size_) return false;
  const auto shortening = std::exchange(shortening_, nullptr);
  if (!done) ::unlink((folder_ / kPreparedJournal).c_str());
  if (done) done = replace(std::move(**shortening->prepared));
  if (done) return true;
  if (shortening->replaces) {
    whole_ = std::move(shortening->whole);
    kept_.insert(0, shortening->kept);
  }
  return done.error();
}

}  // namespace gpumem::host
