#pragma once

namespace gpumem::host {

/// Asks the kernel to run the calling thread, and the threads that it starts from now on, for 0.1 ms at a
/// time where other threads want the processor. A thread then runs sooner after a message has come. A client
/// that it has answered need not wait until it is out of work. Its share of the processor stays the same.
/// Linux 6.12 and later do so, and earlier ones ignore it. A refusal changes nothing.
void ask_for_short_slices();

}  // namespace gpumem::host
