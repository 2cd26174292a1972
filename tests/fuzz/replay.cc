// Runs a fuzz target without a fuzzer: every file of a folder, then mutations of them.
//   GPUMEM_FUZZ_SEED     what the mutations are chosen by; as printed, to repeat them
//   GPUMEM_FUZZ_ROUNDS   how many
//   GPUMEM_FUZZ_SECONDS  or for how long, however many those are
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

constexpr std::uint64_t kRounds = 2000;
constexpr std::size_t kLongest = 2000;

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::vector<std::string> read_folder(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files(std::filesystem::directory_iterator(folder), {});
  std::ranges::sort(files);
  std::vector<std::string> inputs;
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return inputs;
}

class Mutator {
 public:
  Mutator(const std::vector<std::string>& inputs, std::uint64_t seed) : inputs_(inputs), random_(seed) {}

  std::string next() {
    std::string input = below(8) == 0 ? std::string() : inputs_[below(inputs_.size())];
    for (std::size_t changes = 1 + below(8); changes != 0; --changes) change(input);
    if (input.size() > kLongest) input.resize(kLongest);
    return input;
  }

 private:
  std::size_t below(std::size_t limit) { return random_() % limit; }
  char any() { return static_cast<char>(random_()); }

  void change(std::string& input) {
    const std::size_t place = below(input.size() + 1);
    switch (below(4)) {
      case 0: input.insert(place, below(32), any()); break;
      case 1: input.erase(place, below(16)); break;
      case 2: {  // the end of another input
        const std::string& other = inputs_[below(inputs_.size())];
        input.replace(place, std::string::npos, other.substr(below(other.size() + 1)));
        break;
      }
      default:
        for (std::size_t i = place; i < input.size() && below(4) != 0; ++i) input[i] = any();
    }
  }

  const std::vector<std::string>& inputs_;
  std::mt19937_64 random_;
};

void run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return std::fprintf(stderr, "usage: %s CORPUS_FOLDER\n", arguments[0]), 2;
  std::vector<std::string> inputs = read_folder(arguments[1]);
  for (const std::string& input : inputs) run(input);
  std::printf("%zu inputs of %s\n", inputs.size(), arguments[1]);
  inputs.emplace_back();
  const std::uint64_t seed = setting("GPUMEM_FUZZ_SEED", std::random_device{}());
  const std::uint64_t seconds = setting("GPUMEM_FUZZ_SECONDS", 0);
  const std::uint64_t rounds = setting("GPUMEM_FUZZ_ROUNDS", seconds != 0 ? ~std::uint64_t{0} : kRounds);
  std::printf("GPUMEM_FUZZ_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  Mutator mutator(inputs, seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  std::uint64_t round = 0;
  for (; round < rounds && (seconds == 0 || std::chrono::steady_clock::now() < end); ++round)
    run(mutator.next());
  std::printf("%llu mutations\n", static_cast<unsigned long long>(round));
  return 0;
}
