#include "client/cli/regions/publication.h"

#include <algorithm>
#include <functional>
#include <iostream>
#include <optional>
#include <sstream>

#include "client/cli/interrupt.h"
#include "client/cli/lent_devices.h"
#include "client/cli/listings.h"
#include "client/cli/monitor.h"
#include "client/cli/regions/saved_region.h"
#include "client/cli/regions/staging.h"
#include "client/cli/regions/transfer_bar.h"
#include "client/cli/table.h"
#include "client/cli/time_text.h"
#include "client/cli/unknown_command.h"
#include "client/cli/views.h"
#include "client/region_name.h"
#include "cuda/memory.h"
#include "gpumem/session.h"

namespace gpumem::cli {
namespace {

using Clock = std::chrono::steady_clock;

// How often it looks whether the region is still there.
constexpr std::chrono::seconds kLook{2};

// Before anything is loaded. The broker decides.
Result<void> check_region_name(const std::string& name) {
  constexpr std::size_t kMost = 128;
  if (!name.empty() && name.size() <= kMost && printable(name) == name) return {};
  return Error{Code::kInvalidArgument,
               "a region's name has 1 to " + std::to_string(kMost) + " printable bytes; give it another one"};
}

PublishOptions terms_of(const PublicationOptions& options) {
  PublishOptions terms;
  terms.life = options.life;
  terms.keep = options.keep;
  terms.linger = options.linger;
  terms.sealed = options.seal;
  if (options.charge == "shared") terms.charging = Charging::kShared;
  if (options.sharing == "group") terms.sharing = Sharing::kGroup;
  if (options.sharing == "public") terms.sharing = Sharing::kPublic;
  if (options.sharing == "private" || terms.sharing != Sharing::kPrivate) return terms;
  terms.sharing = Sharing::kNamed;
  std::istringstream tenants(options.sharing);
  for (std::string tenant; std::getline(tenants, tenant, ',');) terms.readers.push_back(tenant);
  return terms;
}

// They may come later, so that it is no error.
void warn_of_unknown_readers(const std::filesystem::path& runtime_folder,
                             const std::vector<std::string>& readers) {
  const auto monitor = readers.empty() ? Error{} : Monitor::connect(runtime_folder);
  if (!monitor) return;
  for (const std::string& one : unknown_tenants(*monitor, readers)) {
    const std::string near = nearest_name(one, {"private", "group", "public"}, 2);
    std::cerr << "gpumem publish: --sharing: no tenant '" << printable(one) << "' is known now"
              << (near.empty() ? ";" : "; did you mean '" + near + "'?")
              << " words are private, group, public, or tenants' names\n";
  }
}

Error publication_interrupted() { return {Code::kCancelled, "interrupted: nothing is published"}; }

/// A source on its way into a region.
class Publication {
 public:
  Publication(const PublicationOptions& options, RegionSource& source) : options_(options), source_(source) {}

  Result<void> publish();
  /// Keeps it until it is interrupted, its life is over, or it ends in another way, which is an error.
  Result<void> hold();

 private:
  Result<void> open_slice();
  Result<void> grow();
  Result<void> load();
  Result<void> publish_slice(const PublishOptions& terms);
  /// Fills `content` with the hash of the source's bytes.
  Result<void> hash(std::array<unsigned char, 32>& content);
  /// Gives a region of the same bytes its name, too. False: there is none.
  Result<bool> publish_copy(const PublishOptions& terms);
  Result<bool> is_same(const Region& region);
  /// Gives `take` the source's bytes, piece by piece, until it answers false or an error.
  Result<void> read(Staging& staging, const std::function<Result<bool>(std::uint64_t, std::size_t)>& take);
  Result<void> end();
  /// Errors  kNotFound (it has ended), kUnavailable (the broker does not answer).
  Result<void> check_there() const;
  void tell() const;
  std::string held_text() const;
  std::string arrays_text() const;

  const PublicationOptions& options_;
  RegionSource& source_;
  const Interrupt interrupt_;  // before there are other threads
  std::optional<Session> session_;
  std::optional<Slice> slice_;
  std::optional<Region> copy_;  ///< in the place of the slice's memory
  std::uint64_t version_ = 0;
  Clock::time_point end_ = Clock::time_point::max();
};

Result<void> Publication::open_slice() {
  std::string device;
  if (!options_.device.empty()) {
    auto monitor = Monitor::connect(options_.runtime_folder);
    if (!monitor) return monitor.error();
    const auto status = monitor->status();
    if (!status) return status.error();
    const auto found = find_device(*status, options_.device);
    if (!found) return found.error();
    device = *found;
  }
  // Labels are for everybody who lists sessions: they do not tell of a region.
  auto session = Session::connect({options_.runtime_folder.string(), "gpumem"});
  if (!session) return session.error();
  session_.emplace(std::move(*session));
  auto slice = session_->open_slice({.device = device});
  if (!slice) return slice.error();
  slice_.emplace(std::move(*slice));
  return {};
}

Result<void> Publication::grow() {
  const auto grown =
      slice_->grow({source_.size()}, {.wait = options_.wait, .least = {}, .stop = interrupt_.token()});
  if (grown) return {};
  if (interrupt_.happened()) return publication_interrupted();
  return Error{grown.error().code, "cannot load " + source_.name() + " (" + size_text(source_.size()) +
                                       "): " + grown.error().message};
}

Result<void> Publication::read(Staging& staging,
                               const std::function<Result<bool>(std::uint64_t, std::size_t)>& take) {
  for (std::uint64_t done = 0; done < source_.size();) {
    const std::size_t wanted = std::min<std::uint64_t>(Staging::kBytes, source_.size() - done);
    const auto count = source_.read(staging.bytes().first(wanted));
    if (!count) return count.error();
    const auto more = take(done, *count);
    if (!more) return more.error();
    if (interrupt_.happened()) return publication_interrupted();
    if (!*more) return {};
    done += *count;
  }
  return source_.check();
}

Result<void> Publication::load() {
  auto driver = cuda::Driver::open(session_->driver_folder());
  if (!driver) return driver.error();
  const auto context = cuda::CurrentContext::enter(**driver, slice_->ordinal());
  if (!context) return context.error();
  Staging staging(**driver);
  TransferBar bar("loading", source_.size());
  auto loaded = read(staging, [&](std::uint64_t at, std::size_t count) -> Result<bool> {
    if (auto stored = staging.store(slice_->base() + at, count); !stored) return stored.error();
    bar.show(at + count);
    return true;
  });
  if (!loaded) return loaded;
  return staging.finish();
}

Result<void> Publication::hash(std::array<unsigned char, 32>& content) {
  auto driver = cuda::Driver::open(session_->driver_folder());
  if (!driver) return driver.error();
  Staging staging(**driver);
  Checksum checksum;
  auto hashed = read(staging, [&](std::uint64_t, std::size_t count) -> Result<bool> {
    checksum.add(staging.bytes().first(count));
    return true;
  });
  if (!hashed) return hashed;
  content = checksum.finish();
  return source_.rewind();
}

// A hash is what its publisher says: all bytes are compared.
Result<bool> Publication::is_same(const Region& region) {
  auto driver = cuda::Driver::open(session_->driver_folder());
  if (!driver) return driver.error();
  const auto context = cuda::CurrentContext::enter(**driver, region.ordinal());
  if (!context) return context.error();
  Staging mine(**driver), its(**driver);
  bool same = region.size().count == source_.size();
  auto compared = read(mine, [&](std::uint64_t at, std::size_t count) -> Result<bool> {
    if (auto loaded = its.load(region.address() + at, count); !loaded) return loaded.error();
    return same = same && std::ranges::equal(mine.bytes().first(count), its.bytes().first(count));
  });
  if (!compared) return compared.error();
  if (auto again = source_.rewind(); !again) return again.error();
  return same;
}

Result<bool> Publication::publish_copy(const PublishOptions& terms) {
  auto region = session_->map_content({.device = slice_->device(),
                                       .bytes = {source_.size()},
                                       .layout = terms.layout,
                                       .digest = terms.digest,
                                       .content = terms.content});
  if (!region && region.error().code == Code::kFailedPrecondition) return region.error();
  if (!region) return false;
  auto same = is_same(*region);
  if (!same || !*same) return same;
  const auto published = region->publish(options_.name, terms);
  if (!published) {
    const Code code = published.error().code;
    // It has ended meanwhile, has another charge, or is shared with fewer.
    if (code == Code::kNotFound || code == Code::kFailedPrecondition) return false;
    return published.error();
  }
  version_ = *published;
  copy_.emplace(std::move(*region));
  return true;
}

Result<void> Publication::publish_slice(const PublishOptions& terms) {
  if (auto grown = grow(); !grown) return grown;
  slice_->set_in_use({source_.size()});
  if (auto loaded = load(); !loaded) return loaded;
  auto published = slice_->publish(options_.name, {}, {source_.size()}, terms);
  if (!published) return published.error();
  version_ = *published;
  return {};
}

Result<void> Publication::publish() {
  if (auto named = check_region_name(options_.name); !named) return named;
  if (!options_.keep && options_.linger != options_.linger.zero())
    return Error{Code::kInvalidArgument, "--linger is of a region that is kept: give --keep, too"};
  PublishOptions terms = terms_of(options_);
  if (auto right = client::check_publication(options_.name, terms); !right) return right;
  warn_of_unknown_readers(options_.runtime_folder, terms.readers);
  if (auto opened = source_.open(); !opened) return opened;
  terms.layout = {source_.layout()};
  terms.digest = source_.digest();
  if (auto opened = open_slice(); !opened) return opened;
  if (options_.deduplicate) {
    if (auto hashed = hash(terms.content); !hashed) return hashed;
    if (auto copied = publish_copy(terms); !copied) return copied.error();
  }
  if (!copy_) {
    if (auto published = publish_slice(terms); !published) return published;
  }
  if (options_.life != options_.life.zero()) end_ = Clock::now() + options_.life;
  tell();
  return {};
}

std::string Publication::held_text() const {
  if (!options_.keep) {
    const bool is_endless = end_ == Clock::time_point::max();
    return "; kept until this program is interrupted" +
           (is_endless ? std::string() : " or " + span_text(options_.life) + " are over");
  }
  const bool has_life = options_.life != options_.life.zero();
  const std::string life = has_life ? "; kept for " + span_text(options_.life) : "";
  if (options_.linger == options_.linger.zero())
    return has_life ? life : "; kept until it is removed (gpumem regions rm)";
  return (has_life ? life + ", or " : "; kept for ") + span_text(options_.linger) +
         " after the last process has left it";
}

std::string Publication::arrays_text() const {
  const std::uint64_t count = source_.arrays();
  if (count == 0) return "";
  return " in " + std::to_string(count) + (count == 1 ? " array" : " arrays");
}

void Publication::tell() const {
  if (options_.json) {
    std::cout << json_text({{"name", options_.name},
                            {"owner", session_->tenant()},
                            {"version", version_},
                            {"device", slice_->device()},
                            {"bytes", source_.size()},
                            {"arrays", source_.arrays() ? Json(source_.arrays()) : Json()},
                            {"sharing", options_.sharing},
                            {"charge", options_.charge},
                            {"deduplicated", copy_.has_value()},
                            {"session", session_->id()}});
  } else {
    std::cout << printable(
                     "published '" + options_.name + "', version " + std::to_string(version_) + ": " +
                     size_text(source_.size()) + arrays_text() + " on " + short_uuid(slice_->device()) +
                     ", sharing " + options_.sharing +
                     (options_.charge == "shared" ? ", charge shared by who maps it" : "") +
                     (copy_ ? ", of the same memory as version " + std::to_string(copy_->version()) : "") +
                     held_text())
              << "\n";
  }
  std::cout << std::flush;
}

// Memory of its own takes its region along when the program ends. What lies in another's is removed.
Result<void> Publication::end() {
  if (!copy_) return {};
  auto removed = session_->remove_region(options_.name, version_);
  return removed || removed.error().code == Code::kNotFound ? Result<void>() : removed;
}

Result<void> Publication::check_there() const {
  const auto monitor = Monitor::connect(options_.runtime_folder);
  if (!monitor) return monitor.error();
  const auto listed = monitor->regions(session_->tenant());
  if (!listed) return listed.error();
  const auto& regions = listed->regions();
  if (std::ranges::any_of(regions, [&](const auto& region) { return region.version() == version_; })) return {};
  return Error{Code::kNotFound, "region '" + options_.name + "', version " + std::to_string(version_) +
                                    ", has ended: it was removed, or the broker was started without its "
                                    "memory. This program gives the memory back"};
}

// A broker that is gone may come back, and the session goes on. The region can end first: it is removed, or
// the broker comes back without its memory.
Result<void> Publication::hold() {
  for (;;) {
    const auto now = Clock::now();
    if (now >= end_ || !interrupt_.wait(std::min<Clock::duration>(kLook, end_ - now))) return end();
    auto there = check_there();
    if (there) there = session_->ping();
    if (there || there.error().code == Code::kUnavailable || there.error().code == Code::kDeadlineExceeded)
      continue;
    // The broker counts the region's life from an earlier moment than this program.
    const bool is_over = there.error().code == Code::kNotFound && end_ - Clock::now() < kLook;
    return is_over ? end() : there;
  }
}

}  // namespace

int publish_source(const PublicationOptions& options, RegionSource& source) {
  Publication publication(options, source);
  if (auto published = publication.publish(); !published) return report(published.error());
  if (options.keep) return std::cout ? 0 : 1;
  const auto held = publication.hold();
  return held ? 0 : report(held.error());
}

}  // namespace gpumem::cli
