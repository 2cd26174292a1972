#pragma once

namespace gpumem::shim {

/// Which of the driver's libraries this shim stands for. Each of the two shims defines its own.
struct OwnLibrary {
  const char* file;      ///< name of the real one, as programs open it
  int without_driver;    ///< what every call answers where there is no driver
  int without_call;      ///< what a call answers that the driver does not have
  const char* in_words;  ///< the one call that answers a number by its meaning in words; null: none
  const char* (*words)(int number);  ///< stands in for that one
};
extern const OwnLibrary kOwnLibrary;

}  // namespace gpumem::shim
