// How Go sets the interpreter of PTX.
#ifndef MEZZO_FAKE_INTERPRET_H
#define MEZZO_FAKE_INTERPRET_H
#include "src/interpreter.h"

// mezzo_fake_interpret sets the interpreter of a driver, and returns what is wrong, or
// NULL.
const char *mezzo_fake_interpret(const char *driver);

#endif
