// The actions of signals in this process before it sets handlers of its own.
#pragma once

namespace grapevine {

// Gives back the signals for which libucs, where it is linked, has set handlers before main(): they
// do what they did when the process was started (the default, or nothing where the parent ignored
// them, as nohup does with SIGHUP). Otherwise a crash would print libucs's stack trace in runs that
// never use UCX, and SIGHUP would not end the process. What UCX_HANDLE_ERRORS, UCX_ERROR_SIGNALS or
// UCX_DEBUG_SIGNO ask for stays. Call it first in main().
void restore_inherited_signals();

}  // namespace grapevine
