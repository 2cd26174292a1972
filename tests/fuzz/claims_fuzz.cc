// Any bytes as the file of what is prepared for pods, then claims that come and go, of which some are cut
// short as by a crash: what is stored is whole at any instant, and is what the last claim that came into
// force says.
#include <algorithm>
#include <array>
#include <optional>

#include "base/log.h"
#include "daemon/host/config/claim_store.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/state_folder.h"
#include "tests/fuzz/vocabulary.h"

namespace gpumem::fuzz {
namespace {

using host::ClaimStore;
using pods::PreparedClaims;

constexpr int kMostClaims = 16;

// In an order that is kept: the corpus refers to it.
constexpr std::array<std::string_view, 24> kClaimWords{
    "version = 1\n",
    "version = 2\n",
    "[[claim]]\n",
    "[[claim.pod]]\n",
    "[[claim.amount]]\n",
    "uid = ",
    "namespace = ",
    "name = ",
    "tenant = ",
    "device = ",
    "guarantee = ",
    "limit = ",
    "\"1\"\n",
    "\"2\"\n",
    "\"ml\"\n",
    "\"pod ml/a\"\n",
    "\"pod ml/b\"\n",
    "\"claim ml/c\"\n",
    "\"GPU-01010101-0101-0101-0101-010101010101\"\n",
    "\"8589934592\"\n",
    "\"18446744073709551615\"\n",
    "\"18446744073709551616\"\n",
    "\"\\u202e\\u0000\\uffff\"\n",
    "pod = []\n",
};

// What the store warns of is not worth a line each.
[[maybe_unused]] const bool kQuietClaims = (spdlog::set_level(spdlog::level::off), true);

void require_whole(const PreparedClaims& claims) {
  std::size_t pods = 0;
  for (const auto& [uid, claim] : claims.by_uid) {
    require(!uid.empty() && uid == claim.uid, "a claim is known by its UID");
    require(!claim.pods.empty(), "a claim has a pod");
    for (const core::Pod& pod : claim.pods) {
      const auto tenant = claims.tenants.find(pod.uid);
      require(tenant != claims.tenants.end(), "a pod has a tenant");
      require(pods::is_pods_name(tenant->second), "a pod's tenant can be nobody else's");
      require(tenant->second == claims.tenants.at(claim.pods.front().uid), "a claim is of one tenant");
    }
    for (const core::ClaimAmount& amount : claim.amounts)
      require(amount.guarantee <= amount.limit, "a guarantee is within its limit");
  }
  for (const auto& [pod, tenant] : claims.tenants) {
    for (const auto& [uid, claim] : claims.by_uid) {
      if (std::ranges::find(claim.pods, pod, &core::Pod::uid) == claim.pods.end()) continue;
      ++pods;
      break;
    }
  }
  require(pods == claims.tenants.size(), "no pod without a claim has a tenant");
}

void require_same_text(const PreparedClaims& claims) {
  const auto again = host::parse_claims(host::claims_text(claims), "again");
  require(again.has_value(), "what is written can be read");
  require(*again == claims, "what is read is what was written");
}

// As the API lets them in.
core::PodClaim some_claim(Input& input) {
  core::PodClaim claim{
      .uid = std::to_string(input.below(4)), .space = "ml", .name = {}, .pods = {}, .amounts = {}};
  claim.name = input.one_in(8) ? std::string(253, 'n') : "c" + claim.uid;
  for (std::size_t pods = 1 + input.below(3); pods != 0; --pods) {
    const std::string uid = std::to_string(input.below(6));
    claim.pods.push_back({.uid = "pod-" + uid, .space = "ml", .name = "p" + uid});
  }
  for (std::size_t amounts = 1 + input.below(2); amounts != 0; --amounts) {
    const Bytes guarantee{input.word() >> input.below(64)};
    claim.amounts.push_back({.device = input.one_in(2) ? kFirstDevice : kSecondDevice,
                             .guarantee = guarantee,
                             .limit = input.one_in(2) ? guarantee : Bytes{~std::uint64_t{0}}});
  }
  return claim;
}

class ClaimSteps {
 public:
  ClaimSteps(Input& input, const StateFolder& folder, ClaimStore store)
      : input_(input), folder_(folder), store_(std::move(store)), in_force_(store_->current()) {}

  void step() {
    const auto is_taken = [&](const std::string&) { return input_.one_in(4); };
    PreparedClaims next = input_.one_in(3) ? pods::without_claim(in_force_, std::to_string(input_.below(4)))
                                           : pods::with_claim(in_force_, some_claim(input_), is_taken);
    require_whole(next);
    require(store_->prepare(next).has_value(), "what can be said can be stored");
    switch (input_.below(4)) {
      case 0: store_->discard(); break;
      case 1: reopen(); break;  // the broker was killed before the claim came into force
      default:
        require(store_->commit().has_value(), "what was prepared comes into force");
        in_force_ = std::move(next);
    }
    require(store_->current() == in_force_, "a claim is in force as a whole, or not at all");
    if (input_.one_in(4)) reopen();
  }

  void reopen() {
    store_.reset();
    auto opened = ClaimStore::open(folder_.path());
    require(opened.has_value(), "what was stored can be read");
    store_.emplace(std::move(*opened));
    require(store_->current() == in_force_, "what is in force outlives the broker");
  }

 private:
  Input& input_;
  const StateFolder& folder_;
  std::optional<ClaimStore> store_;
  PreparedClaims in_force_;
};

void run_claims(std::string_view bytes) {
  const StateFolder folder;
  const std::string file = spelled_out(take_part(bytes), kClaimWords);
  const std::string half = spelled_out(take_part(bytes), kClaimWords);
  Input input(bytes);
  if (!file.empty()) folder.write("claims.toml", file);
  folder.write("claims.toml.new", half);  // of a broker that was killed
  auto opened = ClaimStore::open(folder.path());
  if (!opened) {
    require(folder.read("claims.toml") == file, "what cannot be read is left as it is");
    return require(opened.error().message.find("move the file away") != std::string::npos,
                   "an error says what to do");
  }
  require_whole(opened->current());
  require_same_text(opened->current());
  ClaimSteps steps(input, folder, std::move(*opened));
  for (int i = 0; i < kMostClaims && !input.empty(); ++i) steps.step();
  steps.reopen();
}

}  // namespace
}  // namespace gpumem::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gpumem::fuzz::run_claims({reinterpret_cast<const char*>(data), size});
  return 0;
}
