/* Decode weights, encode and decode keys and values, provoke faults; print a table. */
#include "firmware.h"

/* Encode, and decode what was stored. */
static void store(const struct tensor* tensor) {
    encode(tensor);
    decode(tensor, false, true);
    decode(tensor, true, true);
}

static void use(const struct tensor* tensor) {
    if (tensor->vector != 0u) {
        store(tensor);
    } else {
        decode(tensor, false, false);
        decode(tensor, true, false);
    }
}

static void provoke(uint32_t count) {
    const struct tensor* weights = tensor_at(0u); /* unary */
    const struct tensor* exact = tensor_at(count - 3u);
    const struct tensor* keys = tensor_at(count - 2u);   /* unary */
    const struct tensor* values = tensor_at(count - 1u); /* mx */

    put_text("\ndevice            fault               causes\n");
    decoder_faults(weights, exact);
    encoder_faults(keys, values);
    put_text("\ntensor            after the faults    values   cycles\n");
    use(exact);
    use(keys);
}

int main(void) {
    const uint32_t count = AT(const uint32_t, MAIN_RAM_BASE)[1];

    enable_interrupts();
    put_text("\nCassandra in a LiteX SoC\n");
    if (!find_decoder() || !find_encoder()) {
        put_verdict(false);
    }
    put_text("tensor            mode                values   cycles\n");
    for (uint32_t i = 0u; i < count; i++) {
        use(tensor_at(i));
    }
    provoke(count);
    put_text(some_are_wrong() ? "FAIL\n" : "PASS\n");
    finish();
    return 0;
}
