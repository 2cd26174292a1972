#include "client/c/last_error.h"

#include <cstdio>

#include "base/thread_guards.h"

namespace gpumem::c_abi {
namespace {

constexpr const char* kNoMemory = "the host has no memory left, not even for saying what went wrong";

// Destructors that run later at the thread's end may still free blocks. The pointer and the flag have no
// destructor, so they stay valid.
thread_local bool has_ended = false;
thread_local const char* shown = "";
struct Words {
  std::string text;
  std::shared_ptr<const Denial> denial;
  ~Words() {
    has_ended = true;
    shown = "";
  }
};
thread_local Words words;

const char* keep(std::string message) noexcept {
  if (has_ended) return "the thread ends, and its words are gone";
  if (message.empty()) return kNoMemory;
  words.text = std::move(message);
  return words.text.c_str();
}

}  // namespace

gpumem_status fail(Code code, std::string message) noexcept {
  shown = keep(std::move(message));
  if (!has_ended) words.denial = nullptr;
  return static_cast<gpumem_status>(code);
}

gpumem_status fail(const GrowError& error) {
  auto denial = error.denial ? std::make_shared<const Denial>(*error.denial) : nullptr;
  const gpumem_status status = fail(error.code, error.message);
  if (!has_ended) words.denial = std::move(denial);
  return status;
}

const char* last_error() noexcept { return shown; }

std::shared_ptr<const Denial> last_denial() noexcept { return has_ended ? nullptr : words.denial; }

void FailureLog::report(gpumem_status status) noexcept {
  const unsigned kind = 1U << (static_cast<unsigned>(status) % 32U);
  if ((__atomic_fetch_or(&reported_, kind, __ATOMIC_RELAXED) & kind) != 0) return;
  const NoPipeSignal no_signal;
  std::fprintf(stderr, "gpumem: %s: %s: %s (further ones of this kind are not said)\n", function_,
               gpumem_status_name(status), last_error());
}

}  // namespace gpumem::c_abi

extern "C" {

const char* gpumem_version(void) noexcept { return GPUMEM_VERSION; }

const char* gpumem_last_error(void) noexcept { return gpumem::c_abi::last_error(); }

const char* gpumem_status_name(int status) noexcept {
  if (status == GPUMEM_OK) return "OK";
  const std::string_view name = gpumem::code_name(static_cast<gpumem::Code>(status));
  return name.empty() ? "UNKNOWN" : name.data();  // a literal, so it ends with a zero
}

}  // extern "C"
