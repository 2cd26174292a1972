// Any bytes in the pages that a session shares with the broker, changed by the other side while they are
// read.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "shm/pages.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/require.h"

namespace gpumem::fuzz {
namespace {

constexpr std::size_t kWords = kSharedPageBytes / sizeof(std::uint64_t);
constexpr std::size_t kMostChanges = 16;
constexpr int kReads = 4;

/// A page between two that nobody may touch: what reads beyond its ends faults.
class GuardedPage {
 public:
  GuardedPage() {
    const auto unit = static_cast<std::size_t>(::getpagesize());
    void* const space = ::mmap(nullptr, 3 * unit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(space != MAP_FAILED, "there is memory");
    at_ = static_cast<std::byte*>(space) + unit;
    require(::mprotect(at_, unit, PROT_READ | PROT_WRITE) == 0, "the page can be written");
  }

  std::uint64_t& word(std::size_t index) { return reinterpret_cast<std::uint64_t*>(at_)[index]; }
  template <class Page>
  Page& as() {
    return *reinterpret_cast<Page*>(at_);
  }

 private:
  std::byte* at_;
};

struct Change {
  std::size_t word;
  std::uint64_t value;
};

/// What the other side does to the page, and when.
struct Script {
  std::vector<std::uint64_t> first = std::vector<std::uint64_t>(kWords);
  std::vector<Change> changes;

  /// Whether `value` has ever been in the page at `word`.
  bool has(std::size_t word, std::uint64_t value) const {
    if (first[word] == value) return true;
    return std::ranges::any_of(
        changes, [&](const Change& change) { return change.word == word && change.value == value; });
  }
};

// Few and small words, so that what a page says is often possible.
std::uint64_t some_word(Input& input) { return input.one_in(8) ? input.word() : input.byte(); }

Script script_of(Input& input, const PageHeader& header) {
  Script script;
  std::memcpy(script.first.data(), &header, sizeof header);
  const std::size_t places = input.byte();
  const std::size_t changes = input.below(kMostChanges + 1);
  for (std::size_t i = 0; i < places; ++i) {
    // Mostly in the header, the sequence and the figures of the first devices.
    const std::size_t word = input.one_in(4) ? input.word() % kWords : input.below(24);
    script.first[word] = some_word(input);
  }
  while (script.changes.size() < changes) script.changes.push_back({input.below(32), some_word(input)});
  return script;
}

/// The other side: makes its changes again and again until its end.
class OtherSide {
 public:
  OtherSide(GuardedPage& page, const Script& script) {
    for (std::size_t i = 0; i < kWords; ++i) page.word(i) = script.first[i];
    if (script.changes.empty()) return;
    thread_ = std::jthread([&page, &script](const std::stop_token& stop) {
      while (!stop.stop_requested())
        for (const Change& change : script.changes)
          std::atomic_ref(page.word(change.word)).store(change.value, std::memory_order_relaxed);
    });
  }

 private:
  std::jthread thread_;
};

// The client reads the broker's page.
void read_brokers(GuardedPage& page, const Script& script) {
  const auto& shared = page.as<const BrokerPage>();
  const OtherSide broker(page, script);
  for (int i = 0; i < kReads; ++i) {
    const bool valid = validate(shared).has_value();
    if (script.changes.empty() && valid)
      require(script.first[0] == kBrokerPageMagic, "a page of another kind is refused");
    const auto figures = read_figures(shared);
    if (!figures) continue;
    require(figures->device_count <= kMaxDevices, "no more devices than a page has");
    constexpr std::size_t kFirst = offsetof(BrokerPage, figures) / sizeof(std::uint64_t);
    std::vector<std::uint64_t> words(sizeof *figures / sizeof(std::uint64_t));
    std::memcpy(words.data(), &*figures, sizeof *figures);
    for (std::size_t word = 0; word < words.size(); ++word)
      require(script.has(kFirst + word, words[word]), "a copy has what the page had");
  }
}

// The broker reads the client's page.
void read_clients(GuardedPage& page, const Script& script, Input& input) {
  const auto& shared = page.as<const ClientPage>();
  const OtherSide client(page, script);
  for (int i = 0; i < kReads; ++i) {
    const std::size_t device = input.one_in(8) ? input.word() : input.below(kMaxDevices + 1);
    const std::uint64_t charged = some_word(input);
    const auto figures = read_figures(shared, device, charged);
    if (!figures) continue;
    require(device < kMaxDevices, "a page has figures of so many devices");
    require(figures->in_use <= figures->peak && figures->in_use <= figures->committed &&
                figures->committed <= figures->reserved && figures->committed <= charged,
            "figures can be true");
    const std::size_t first =
        (offsetof(ClientPage, devices) + device * sizeof(ClientFigures)) / sizeof(std::uint64_t);
    const std::uint64_t words[] = {figures->reserved, figures->committed, figures->in_use, figures->peak};
    for (std::size_t word = 0; word < std::size(words); ++word)
      require(script.has(first + word, words[word]), "a copy has what the page had");
  }
}

void run(Input& input) {
  static GuardedPage page;
  if (input.one_in(2)) {
    const Script script = script_of(input, {kBrokerPageMagic, kPageVersion, kSharedPageBytes});
    read_brokers(page, script);
  } else {
    const Script script = script_of(input, {kClientPageMagic, kPageVersion, kSharedPageBytes});
    read_clients(page, script, input);
  }
}

}  // namespace
}  // namespace gpumem::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gpumem::fuzz::Input input({reinterpret_cast<const char*>(data), size});
  gpumem::fuzz::run(input);
  return 0;
}
