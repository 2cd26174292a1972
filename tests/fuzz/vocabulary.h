#pragma once
#include <span>
#include <string>
#include <string_view>

namespace gpumem::fuzz {

/// The text that `bytes` stand for: ASCII for itself, each other byte for a piece of a configuration, such as
/// a table's title, a key or an amount. A fuzzer that changes one byte so changes a whole word. 0xff lets the
/// byte after it stand for itself.
std::string spelled_out(std::string_view bytes);

/// The same with pieces of another text, at least one.
std::string spelled_out(std::string_view bytes, std::span<const std::string_view> words);

/// Takes what is before the first zero byte away from `bytes`, and the zero byte; all of it where there is
/// none.
std::string_view take_part(std::string_view& bytes);

/// What config_fuzz, quota_fuzz and claims_fuzz call the machine's devices.
inline constexpr const char* kFirstDevice = "GPU-01010101-0101-0101-0101-010101010101";
inline constexpr const char* kSecondDevice = "GPU-02020202-0202-0202-0202-020202020202";

}  // namespace gpumem::fuzz
