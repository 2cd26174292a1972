#pragma once
#include <string>

namespace gpumem::kubernetes::test {

/// A certificate for 127.0.0.1 that vouches for itself, and its key; both PEM. Made anew each time.
struct Certificate {
  std::string certificate;
  std::string key;
};
Certificate make_certificate();

}  // namespace gpumem::kubernetes::test
