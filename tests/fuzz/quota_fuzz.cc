// Any bytes as the files of the state folder, then changes of quotas, of which some are cut short as by a
// crash: what is stored is whole at any instant, and is what the last change that came into force says.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/log.h"
#include "daemon/host/config/quota_overlay.h"
#include "daemon/host/config/quota_store.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/state_folder.h"
#include "tests/fuzz/vocabulary.h"

namespace gpumem::fuzz {
namespace {

using core::Quota, core::QuotaChange;
using host::QuotaOverlay, host::QuotaStore;

constexpr const char* kNow = "2030-01-02T12:00:00Z";
constexpr int kMostChanges = 16;
const std::vector<std::string> kDevices{kFirstDevice, kSecondDevice};

// What the store warns of is not worth a line each.
[[maybe_unused]] const bool kQuiet = (spdlog::set_level(spdlog::level::off), true);

Result<QuotaStore> open(const StateFolder& folder) { return QuotaStore::open(folder.path(), kNow); }

std::optional<std::string> some_amount(Input& input) {
  constexpr std::string_view kAmounts[] = {"8GiB",         "25%", "33.33%",
                                           "all-but 2GiB", "0",   "18446744073709551615"};
  if (input.one_in(2)) return std::nullopt;
  if (input.one_in(8)) return std::string(input.text(input.below(24)));
  return std::string(kAmounts[input.below(std::size(kAmounts))]);
}

std::optional<std::uint32_t> some_number(Input& input) {
  if (input.one_in(2)) return std::nullopt;
  return input.one_in(8) ? static_cast<std::uint32_t>(input.word()) : input.below(16);
}

// Of a tenant that exists: their names are printable, as configurations have them.
QuotaChange some_change(Input& input) {
  constexpr std::string_view kTenants[] = {"a", "b", "uid:1", "Ann's \"lab\" \\ \u00fc", ""};
  QuotaChange change;
  change.tenant = kTenants[input.below(std::size(kTenants))];
  if (input.one_in(2)) change.device = input.one_in(8) ? "GPU-gone" : kDevices[input.below(kDevices.size())];
  change.reset = input.one_in(4);
  if (change.reset && !input.one_in(8)) return change;
  change.guarantee = some_amount(input);
  change.limit = some_amount(input);
  change.weight = some_number(input);
  change.priority = some_number(input);
  return change;
}

// What the log says, it says in whole lines; those that were written here are JSON.
void require_audit(const StateFolder& folder, std::size_t before) {
  const std::string log = folder.read("audit.log");
  require(log.empty() || log.back() == '\n', "the log is whole lines");
  require(log.size() >= before, "the log is only added to");
  std::size_t at = before;
  for (std::size_t end = log.find('\n', at); end != std::string::npos; end = log.find('\n', at)) {
    const auto line = nlohmann::json::parse(log.substr(at, end - at), nullptr, false);
    require(end == at || line.is_object(), "a line of the log is an object");
    at = end + 1;
  }
}

class Store {
 public:
  explicit Store(Input& input, const StateFolder& folder, QuotaStore store)
      : input_(input), folder_(folder), store_(std::move(store)), in_force_(store_->current()) {}

  void step() {
    const QuotaChange change = some_change(input_);
    auto next = host::with_change(in_force_, change, kDevices);
    if (!next) return;
    next->revision = in_force_.revision + 1;
    next->changed = kNow;
    next->changed_by = "uid 0 (fuzz)";
    require_change(change, *next);
    const core::Peer by{.pid = 1, .uid = 0, .gids = {}, .command = std::string(input_.text(input_.below(8)))};
    const auto prepared = store_->prepare(*next, {kNow, by, change, {next->revision, {}, {}}});
    require(prepared.has_value(), "what can be said can be stored");
    switch (input_.below(4)) {
      case 0: store_->discard(kNow, "no"); break;
      case 1: reopen(); break;  // the broker was killed before the change came into force
      default:
        require(store_->commit().has_value(), "what was prepared comes into force");
        in_force_ = std::move(*next);
    }
    require(store_->current() == in_force_, "a change is in force as a whole, or not at all");
    if (input_.one_in(4)) reopen();
  }

  void reopen() {
    store_.reset();
    auto opened = open(folder_);
    require(opened.has_value(), "what was stored can be read");
    store_.emplace(std::move(*opened));
    require(store_->current() == in_force_, "what is in force outlives the broker");
  }

 private:
  // A reset leaves nothing of the tenant where it was asked for; all else is in the overlay as it was asked
  // for.
  void require_change(const QuotaChange& change, const QuotaOverlay& next) {
    const auto quotas = next.tenants.find(change.tenant);
    if (change.reset && change.device.empty())
      return require(quotas == next.tenants.end(), "a reset leaves nothing");
    if (change.reset || quotas == next.tenants.end()) return;
    const host::QuotaConfig& quota =
        change.device.empty() ? quotas->second.everywhere : quotas->second.by_device.at(change.device);
    if (change.limit) require(quota.limit == *parse_amount(*change.limit), "a limit is as it was set");
    if (change.guarantee)
      require(quota.guarantee == *parse_amount(*change.guarantee), "a guarantee is as it was set");
    if (change.weight) require(quota.weight == change.weight, "a weight is as it was set");
    if (change.priority) require(quota.priority == change.priority, "a priority is as it was set");
  }

  Input& input_;
  const StateFolder& folder_;
  std::optional<QuotaStore> store_;
  QuotaOverlay in_force_;
};

void run(std::string_view bytes) {
  const StateFolder folder;
  const std::string quotas = spelled_out(take_part(bytes));
  const std::string_view log = take_part(bytes);
  Input input(bytes);
  if (!quotas.empty()) folder.write("quotas.toml", quotas);
  if (!log.empty()) folder.write("audit.log", log);
  folder.write("quotas.toml.new", quotas);  // of a broker that was killed
  auto opened = open(folder);
  if (!opened) {
    require(folder.read("quotas.toml") == quotas, "what cannot be read is left as it is");
    return require(!opened.error().message.empty(), "an error has words");
  }
  const std::string ended = folder.read("audit.log");
  require(ended.starts_with(log), "the log is only added to");
  Store store(input, folder, std::move(*opened));
  store.reopen();
  require(folder.read("audit.log") == ended, "what never came into force is taken back once");
  for (int i = 0; i < kMostChanges && !input.empty(); ++i) store.step();
  store.reopen();
  require_audit(folder, ended.size());
}

}  // namespace
}  // namespace gpumem::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gpumem::fuzz::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
