#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace gpumem::fuzz {

/// Reads the fuzzer's bytes as numbers. Past the end everything is 0.
class Input {
 public:
  explicit Input(std::string_view bytes) : rest_(bytes) {}

  bool empty() const { return rest_.empty(); }
  std::uint8_t byte() { return static_cast<std::uint8_t>(number<char>()); }
  /// Below `limit`, which is at least 1 and at most 256.
  std::size_t below(std::size_t limit) { return byte() % limit; }
  bool one_in(std::size_t n) { return below(n) == n - 1; }
  std::uint64_t word() { return number<std::uint64_t>(); }
  /// As many bytes as there are, `most` at most.
  std::string_view text(std::size_t most) {
    const std::string_view taken = rest_.substr(0, most);
    rest_.remove_prefix(taken.size());
    return taken;
  }

 private:
  template <class Number>
  Number number() {
    Number number{};
    const std::string_view bytes = text(sizeof number);
    if (!bytes.empty()) std::memcpy(&number, bytes.data(), bytes.size());
    return number;
  }

  std::string_view rest_;
};

}  // namespace gpumem::fuzz
