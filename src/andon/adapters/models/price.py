"""Price: what a provider's model costs, by the table that genai-prices maintains."""

import genai_prices

from andon.core.limits import Usage

_SELLERS = {"openai-chat": "openai", "openai-responses": "openai", "google-cloud": "google"}


def price(name: str, usage: Usage) -> float | None:
    """Give the cost of some usage in US dollars; None where the table has no answer."""
    provider, _, model = name.partition(":")
    spent = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    try:
        found = genai_prices.calc_price(spent, model, provider_id=_SELLERS.get(provider, provider))
    except (LookupError, ValueError):  # ValueError: it has told counts that do not fit each other
        return None
    return float(found.total_price)
