/* Text on the serial port. */
#include "firmware.h"

#define NAME 18u /* columns of a name */

static bool wrong;

static void put_char(char letter) {
    while (uart_txfull_read() != 0u) {
    }
    uart_rxtx_write((uint32_t)letter);
}

void put_text(const char* text) {
    while (*text != '\0') {
        put_char(*text++);
    }
}

void put_name(const char* name) {
    for (uint32_t width = 0u; width < NAME; width++) {
        put_char(*name == '\0' ? ' ' : *name++);
    }
}

void put_number(uint32_t number, uint32_t width) {
    char digits[10];
    uint32_t count = 0u;

    do {
        digits[count++] = (char)('0' + (char)(number % 10u));
        number /= 10u;
    } while (number != 0u);
    for (uint32_t i = count; i < width; i++) {
        put_char(' ');
    }
    while (count > 0u) {
        put_char(digits[--count]);
    }
}

void put_verdict(bool right) {
    put_text(right ? "  ok\n" : "  WRONG\n");
    wrong = wrong || !right;
}

bool some_are_wrong(void) { return wrong; }

void finish(void) {
    while (uart_txempty_read() == 0u) {
    }
    main_finish_write(1u);
}
