/* SPDX-License-Identifier: Apache-2.0
 * How a text is cut into words before their bytes are merged into tokens. The rules are those that
 * models were trained with; written as patterns, tried from left to right:
 *
 *     all         's 't 're 've 'm 'll 'd
 *     GPT2        ␣?L+   ␣?N+   ␣?O+   S+ (but one, before a word)   S+
 *     DIGITS      as GPT2, but a digit is a word of its own, and cut off before all else
 *     LLAMA3      C?L+   N (up to three)   ␣?O+ newline*   S* newline+   S+ (but one, …)   S+
 *     QWEN2       as LLAMA3, but a digit is a word of its own
 *
 * L: letters, N: numbers, S: white space, O: what is none of these, C: neither L nor N nor a
 * newline. LLAMA3 and QWEN2 take the first row in capitals, too. */
#ifndef TOKEN_SPLIT_H
#define TOKEN_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum token_split { TOKEN_GPT2, TOKEN_DIGITS, TOKEN_LLAMA3, TOKEN_QWEN2 } token_split;

/* Bytes of the first word of `text`, of which there is at least one byte. *part is 0 at the
 * beginning of a text and left alone from word to word: bytes up to the next digit, for DIGITS. */
size_t token_word(token_split how, const char *text, size_t length, size_t *part);

/* White space, as the patterns have it. */
bool token_is_space(uint32_t code_point);

#endif
