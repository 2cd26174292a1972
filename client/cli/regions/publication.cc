#include "client/cli/regions/publication.h"

#include <algorithm>
#include <iostream>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "client/cli/commands/commands.h"
#include "client/cli/commands/usage.h"
#include "client/cli/monitor/monitor.h"
#include "client/cli/regions/region_content.h"
#include "client/cli/regions/source_file.h"
#include "client/cli/views/progress.h"
#include "client/cli/views/text.h"
#include "client/cli/views/views.h"
#include "client/session/exported_range.h"
#include "gpumem/session.h"

namespace gpumem::cli {
namespace {

using Clock = std::chrono::steady_clock;

// How often it looks whether the region is still there.
constexpr std::chrono::seconds kLook{2};

bool is_word(const std::string& sharing) {
  return sharing == "private" || sharing == "group" || sharing == "public";
}

PublishOptions terms_of(const PublicationOptions& options) {
  PublishOptions terms;
  terms.life = options.life;
  terms.keep = options.keep;
  terms.linger = options.linger;
  terms.sealed = options.seal;
  if (options.sharing == "group") terms.sharing = Sharing::kGroup;
  if (options.sharing == "public") terms.sharing = Sharing::kPublic;
  if (is_word(options.sharing)) return terms;
  terms.sharing = Sharing::kNamed;
  std::istringstream tenants(options.sharing);
  for (std::string tenant; std::getline(tenants, tenant, ',');) terms.readers.push_back(tenant);
  return terms;
}

// `sharing` with the tenants of users in place of their names.
std::string tenants_in(const std::filesystem::path& runtime_folder, const std::string& sharing) {
  if (is_word(sharing)) return sharing;
  std::string tenants;
  std::istringstream names(sharing);
  for (std::string name; std::getline(names, name, ',');) tenants += find_tenant(runtime_folder, name) + ",";
  if (!tenants.empty()) tenants.pop_back();
  return tenants;
}

// They may come later, so that it is no error.
void warn_of_unknown_readers(const std::filesystem::path& runtime_folder,
                             const std::vector<std::string>& readers) {
  const auto monitor = readers.empty() ? Error{} : Monitor::connect(runtime_folder);
  if (!monitor) return;
  for (const std::string& one : unknown_tenants(*monitor, readers)) {
    const std::string near = nearest_name(one, {"private", "group", "public"}, 2);
    std::cerr << "gpumem publish: --sharing: no tenant '" << printable(tenant_text(one)) << "' is known now"
              << (near.empty() ? ";" : "; did you mean '" + near + "'?")
              << " words are private, group, public, or names of tenants and users\n";
  }
}

// Before anything is loaded.
Result<PublishOptions> checked_terms(const PublicationOptions& options) {
  if (auto named = check_region_name(options.name); !named) return named.error();
  const PublishOptions terms = terms_of(options);
  if (auto right = client::check_publication(options.name, terms); !right) return right.error();
  warn_of_unknown_readers(options.runtime_folder, terms.readers);
  return terms;
}

// The UUID; empty: the first.
Result<std::string> device_of(const PublicationOptions& options) {
  if (options.device.empty()) return std::string();
  const auto monitor = Monitor::connect(options.runtime_folder);
  if (!monitor) return monitor.error();
  const auto status = monitor->status();
  if (!status) return status.error();
  return find_device(*status, options.device);
}

std::string seconds(std::chrono::milliseconds time) {
  return std::to_string(static_cast<double>(time.count()) / 1000);
}

Error publication_interrupted() { return {Code::kCancelled, "interrupted: nothing is published"}; }

/// A file of any bytes on its way into a region.
class Publication {
 public:
  Publication(const PublicationOptions& options, const std::filesystem::path& file)
      : options_(options), source_(file) {}

  Result<void> publish();
  /// Keeps it until it is interrupted, its life is over, or it ends in another way, which is an error.
  Result<void> hold();

 private:
  Result<void> open_slice();
  Result<void> grow();
  Result<void> load();
  Result<void> publish_slice(const PublishOptions& terms);
  /// Errors  kNotFound (it has ended), kUnavailable (the broker does not answer).
  Result<void> check_there() const;
  void tell() const;
  std::string held_text() const;

  const PublicationOptions& options_;
  SourceFile source_;
  const Interrupt interrupt_;  // before there are other threads
  std::optional<Session> session_;
  std::optional<Slice> slice_;
  std::string device_name_;
  std::uint64_t version_ = 0;
  Clock::time_point end_ = Clock::time_point::max();
};

Result<void> Publication::open_slice() {
  const auto device = device_of(options_);
  if (!device) return device.error();
  // Labels are for everybody who lists sessions: they do not tell of a region.
  auto session = Session::connect({options_.runtime_folder.string(), "gpumem"});
  if (!session) return session.error();
  session_.emplace(std::move(*session));
  auto slice = session_->open_slice({.device = *device});
  if (!slice) return slice.error();
  slice_.emplace(std::move(*slice));
  device_name_ = device_name(slice_->device(), lent_to(*session_));
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

Result<void> Publication::load() {
  auto staging = Staging::open(session_->driver_folder(), slice_->ordinal());
  if (!staging) return staging.error();
  TransferBar bar("loading", source_.size());
  for (std::uint64_t done = 0; done < source_.size();) {
    const std::size_t wanted = std::min<std::uint64_t>(Staging::kBytes, source_.size() - done);
    const auto count = source_.read(staging->bytes().first(wanted));
    if (!count) return count.error();
    if (auto stored = staging->store(slice_->base() + done, *count); !stored) return stored;
    if (interrupt_.happened()) return publication_interrupted();
    done += *count;
    bar.show(done);
  }
  if (auto same = source_.check(); !same) return same;
  return staging->finish();
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
  const auto terms = checked_terms(options_);
  if (!terms) return terms.error();
  if (auto opened = source_.open(); !opened) return opened;
  if (auto opened = open_slice(); !opened) return opened;
  if (auto published = publish_slice(*terms); !published) return published;
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

void Publication::tell() const {
  if (options_.json) {
    std::cout << json_text({{"name", options_.name},
                            {"owner", session_->tenant()},
                            {"version", version_},
                            {"device", slice_->device()},
                            {"bytes", source_.size()},
                            {"arrays", Json()},
                            {"sharing", options_.sharing},
                            {"session", session_->id()}});
  } else {
    std::cout << printable("published '" + options_.name + "', version " + std::to_string(version_) + ": " +
                           size_text(source_.size()) + " on " + device_name_ + ", sharing " +
                           options_.sharing + held_text())
              << "\n";
  }
  std::cout << std::flush;
}

Result<void> Publication::check_there() const {
  const auto monitor = Monitor::connect(options_.runtime_folder);
  if (!monitor) return monitor.error();
  const auto listed = monitor->regions(session_->tenant());
  if (!listed) return listed.error();
  const auto& regions = listed->regions();
  if (std::ranges::any_of(regions, [&](const auto& region) { return region.version() == version_; }))
    return {};
  return Error{Code::kNotFound, "region '" + options_.name + "', version " + std::to_string(version_) +
                                    ", has ended: it was removed, or the broker was started without its "
                                    "memory. This program gives the memory back"};
}

// A broker that is gone may come back, and the session goes on. The region can end first: it is removed, or
// the broker comes back without its memory.
Result<void> Publication::hold() {
  for (;;) {
    const auto now = Clock::now();
    if (now >= end_ || !interrupt_.wait(std::min<Clock::duration>(kLook, end_ - now))) return {};
    auto there = check_there();
    if (there) there = session_->ping();
    if (there || there.error().code == Code::kUnavailable || there.error().code == Code::kDeadlineExceeded)
      continue;
    // The broker counts the region's life from an earlier moment than this program.
    const bool is_over = there.error().code == Code::kNotFound && end_ - Clock::now() < kLook;
    return is_over ? Result<void>() : there;
  }
}

// Python does it, in place of this program. Answers the exit status, if that cannot begin.
int publish_safetensors(const PublicationOptions& options, const std::filesystem::path& file) {
  if (const auto terms = checked_terms(options); !terms) return report(terms.error());
  const auto device = device_of(options);
  if (!device) return report(device.error());
  std::error_code unknown;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", unknown);
  std::vector<std::string> words{"publish", "--name=" + options.name, "--sharing=" + options.sharing,
                                 "--wait=" + seconds(options.wait), "--gpumem=" + program.string()};
  if (!device->empty()) words.push_back("--device=" + *device);
  if (options.life != options.life.zero()) words.push_back("--life=" + seconds(options.life));
  if (options.keep) words.emplace_back("--keep");
  if (options.linger != options.linger.zero()) words.push_back("--linger=" + seconds(options.linger));
  if (options.seal) words.emplace_back("--seal");
  if (options.json) words.emplace_back("--json");
  words.insert(words.end(), {"--", file.string()});
  return run_python(options.runtime_folder, std::move(words));
}

}  // namespace

Result<void> check_region_name(const std::string& name) {
  constexpr std::size_t kMost = 128;
  if (!name.empty() && name.size() <= kMost && printable(name) == name) return {};
  return Error{Code::kInvalidArgument,
               "a region's name has 1 to " + std::to_string(kMost) + " printable bytes; give it another one"};
}

bool is_safetensors(const std::filesystem::path& path) {
  return path.filename().string().ends_with(".safetensors");
}

int publish_file(PublicationOptions options, const std::filesystem::path& file, bool raw) {
  if (options.name.empty()) options.name = file.filename().string();
  options.sharing = tenants_in(options.runtime_folder, options.sharing);
  if (!raw && is_safetensors(file)) return publish_safetensors(options, file);
  Publication publication(options, file);
  if (auto published = publication.publish(); !published)
    return report(published.error(), options.runtime_folder);
  if (options.keep) return std::cout ? 0 : 1;
  const auto held = publication.hold();
  return held ? 0 : report(held.error(), options.runtime_folder);
}

}  // namespace gpumem::cli
