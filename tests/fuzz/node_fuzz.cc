// Any text as what the programs for Kubernetes read on their node and from the API server: the driver's own
// checkpoint, the kubelet's, and a claim. An error with words, or what can be written and read again.
#include <array>
#include <boost/crc.hpp>
#include <set>

#include "daemon/kubernetes/claims/checkpoint.h"
#include "daemon/kubernetes/device_plugin/kubelet_allocations.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/state_folder.h"
#include "tests/fuzz/vocabulary.h"

namespace gpumem::fuzz {
namespace {

using kubernetes::Checkpoint;
using kubernetes::Json;

constexpr const char* kResource = "gpumem.dev/memory-256Mi";

// In an order that is kept: the corpus refers to it.
constexpr std::array<std::string_view, 52> kNodeWords{
    "{\"version\":1,\"checksum\":",
    "\"claims\":[",
    "\"uid\":",
    "\"namespace\":",
    "\"name\":",
    "\"standalone\":",
    "\"pods\":[",
    "\"shares\":[",
    "\"request\":",
    "\"pool\":",
    "\"device\":",
    "\"shareID\":",
    "\"uuid\":",
    "\"guarantee\":",
    "\"limit\":",
    "\"11111111-2222\"",
    "\"GPU-01010101-0101-0101-0101-010101010101\"",
    "8589934592",
    "18446744073709551615",
    "-1",
    "1e300",
    "null",
    "true",
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    "{\"Data\":{\"PodDeviceEntries\":[",
    "\"RegisteredDevices\":{}",
    "\"PodUID\":",
    "\"ContainerName\":\"main\"",
    "\"ResourceName\":",
    "\"DeviceIDs\":{\"0\":[",
    "\"gpumem.dev/memory-256Mi\"",
    "\"gpumem.dev/memory-1Gi\"",
    "\"GPU-01010101-0101-0101-0101-010101010101::0\"",
    "\"GPU-01010101-0101-0101-0101-010101010101::1\"",
    "{\"metadata\":{\"uid\":\"11111111-2222\"",
    "\"ownerReferences\":[{\"apiVersion\":\"v1\",\"kind\":\"Pod\"}]",
    "\"status\":{\"allocation\":{\"devices\":{\"results\":[",
    "\"config\":[",
    "\"reservedFor\":[",
    "{\"driver\":\"gpumem.dev\",",
    "{\"resource\":\"pods\",",
    "\"consumedCapacity\":{\"memory\":",
    "{\"requests\":[",
    "\"source\":\"FromClaim\"",
    "\"opaque\":{\"driver\":\"gpumem.dev\",\"parameters\":",
    "{\"apiVersion\":\"gpumem.dev/v1alpha1\",\"kind\":\"SliceParameters\",",
    "\"8Gi\"",
    "\"16Gi\"",
    "\"unlimited\"",
    "\"gpu\"",
    "\"0.5\"",
    "\"\\u202e\\u0000\\ud800\"",
};

void require_words(const Error& error) { require(!error.message.empty(), "an error has words"); }

// What one version of the driver has read it writes so that the next reads the same.
void try_checkpoint(std::string_view text) {
  const StateFolder folder;
  folder.write("checkpoint.json", text);
  const Checkpoint checkpoint(folder.path());
  const auto claims = checkpoint.load();
  require(folder.read("checkpoint.json") == text, "reading changes nothing");
  if (!claims) return require_words(claims.error());
  for (const auto& [uid, claim] : *claims) require(uid == claim.claim.uid, "a claim is known by its UID");
  require(checkpoint.save(*claims).has_value(), "what was read can be written");
  const std::string written = folder.read("checkpoint.json");
  const auto again = checkpoint.load();
  require(again.has_value(), "what was written can be read");
  require(checkpoint.save(*again).has_value() && folder.read("checkpoint.json") == written,
          "what is read is what was written");
}

// As a driver has written it: with the sum that belongs to it.
std::string with_checksum(std::string_view claims) {
  const Json list = kubernetes::parse_json(claims);
  const std::string text = list.is_discarded() ? "[]" : kubernetes::json_text(list);
  boost::crc_32_type crc;
  crc.process_bytes(text.data(), text.size());
  return R"({"version":1,"checksum":)" + std::to_string(crc.checksum()) + R"(,"claims":)" + text + "}";
}

void try_kubelets(std::string_view text) {
  const auto record = kubernetes::read_kubelet_checkpoint(text, kResource);
  if (!record) return require_words(record.error());
  std::set<std::string> units;
  std::size_t count = 0;
  for (const auto& [pod, held] : record->held) {
    require(!pod.empty() && !held.empty(), "who has units is a pod");
    units.insert(held.begin(), held.end());
    count += held.size();
  }
  require(units.size() == count, "a unit is of one pod");
}

void try_claim(std::string_view text) {
  const auto allocation = kubernetes::read_claim(
      kubernetes::parse_json(text), {.space = "ml", .name = "c", .uid = "11111111-2222"}, "gpumem.dev");
  if (!allocation) return require_words(allocation.error());
  require(!allocation->shares.empty() && !allocation->pods.empty(), "memory is for a pod");
  for (const kubernetes::Share& share : allocation->shares) {
    require(!share.guarantee.is_zero(), "a share is of some memory");
    require(share.guarantee <= share.limit, "a guarantee is within its limit");
  }
}

void run_node(std::string_view bytes) {
  const auto next = [&] { return spelled_out(take_part(bytes), kNodeWords); };
  try_checkpoint(next());
  try_checkpoint(with_checksum(next()));
  try_kubelets(next());
  try_claim(next());
}

}  // namespace
}  // namespace gpumem::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gpumem::fuzz::run_node({reinterpret_cast<const char*>(data), size});
  return 0;
}
