#include "tests/fuzz/vocabulary.h"

#include <algorithm>
#include <array>

namespace gpumem::fuzz {
namespace {

constexpr unsigned kFirstWord = 0x80;
constexpr unsigned kItself = 0xff;

// In an order that is kept: the corpus refers to it.
constexpr std::array<std::string_view, 68> kWords{
    "[broker]\n",
    "[default]\n",
    "[metrics]\n",
    "[[device]]\n",
    "[[tenant]]\n",
    "[[tenant.device]]\n",
    "[[default.device]]\n",
    "reserve = ",
    "guarantee = ",
    "limit = ",
    "weight = ",
    "priority = ",
    "name = ",
    "parent = ",
    "user = ",
    "group = ",
    "uuid = ",
    "refuse = ",
    "fabric_handles = ",
    "lend_guarantees = ",
    "reclaim_deadline_ms = ",
    "escalation = ",
    "grace_seconds = ",
    "context_overhead = ",
    "runtime_dir = ",
    "state_dir = ",
    "socket_group = ",
    "admin_group = ",
    "max_sessions = ",
    "max_sessions_per_tenant = ",
    "max_wait_seconds = ",
    "aging_seconds = ",
    "reconcile_seconds = ",
    "past_broker = ",
    "past_broker_allowance = ",
    "past_broker_confirm_seconds = ",
    "listen = ",
    "revision = ",
    "changed = ",
    "changed_by = ",
    "\"a\"\n",
    "\"b\"\n",
    "\"c\"\n",
    "\"uid:1\"\n",
    "\"root\"\n",
    "\"GPU-01010101-0101-0101-0101-010101010101\"\n",
    "\"GPU-02020202-0202-0202-0202-020202020202\"\n",
    "\"24GiB\"\n",
    "\"8GiB\"\n",
    "\"1GiB\"\n",
    "\"3MiB\"\n",
    "\"25%\"\n",
    "\"33.33%\"\n",
    "\"100%\"\n",
    "\"all-but 2GiB\"\n",
    "\"all-but 20TiB\"\n",
    "\"18446744073709551615\"\n",
    "9223372036854775807\n",
    "0\n",
    "1\n",
    "100\n",
    "true\n",
    "false\n",
    "\"end-session\"\n",
    "\"deny\"\n",
    "\"end\"\n",
    "\"127.0.0.1:9400\"\n",
    "\"\\u202e\\u0000\\uffff\"\n",
};

}  // namespace

std::string spelled_out(std::string_view bytes) { return spelled_out(bytes, kWords); }

std::string spelled_out(std::string_view bytes, std::span<const std::string_view> words) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if (byte < kFirstWord) {
      text += bytes[i];
    } else if (byte != kItself) {
      text += words[(byte - kFirstWord) % words.size()];
    } else if (++i < bytes.size()) {
      text += bytes[i];
    }
  }
  return text;
}

std::string_view take_part(std::string_view& bytes) {
  const std::size_t end = bytes.find('\0');
  const std::string_view part = bytes.substr(0, end);
  bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
  return part;
}

}  // namespace gpumem::fuzz
