#pragma once
#include <cstdint>
#include <exception>
#include <string>

// The part of PyTorch's c10/util/Exception.h that torch.cc uses, under the same names.

namespace c10 {

struct SourceLocation {
  const char* function;
  const char* file;
  std::uint32_t line;
};

class Error : public std::exception {
 public:
  Error(SourceLocation location, std::string words);
  const char* what() const noexcept override { return words_.c_str(); }

 private:
  std::string words_;
};

class OutOfMemoryError : public Error {
 public:
  using Error::Error;
#ifdef GPUMEM_FAKE_TORCH_EXPORTS_ALL
  OutOfMemoryError(SourceLocation location, std::string words);
#endif
};

}  // namespace c10
