#pragma once
#include <string>

#include "base/printable.h"

namespace gpumem::cli {

/// For words that go into a message to the broker: it carries nothing but UTF-8, and would say less of it.
inline std::string refuse_unprintable(const std::string& text) {
  return is_printable(text) ? std::string() : "not UTF-8, or it has control characters in it";
}

}  // namespace gpumem::cli
