"""Words to make keys of: a key is ``adjective-noun``, and no key stands inside another one.

No adjective ends in another and no noun begins with another, so that looking for a key in an answer finds that key.
"""

from __future__ import annotations

_ADJECTIVES = """
abrupt absent active agile alert amber ample ancient angry anxious arctic ashen autumn awkward azure basic blunt brave
brief bright brisk broad broken bronze brown busy calm candid careful casual cheap chief chilly civil classic clean
clever cloudy clumsy coarse comic common cosmic cosy covert crimson crisp crude cubic curious damp daring decent deep
dense dim distant docile double dreary drowsy dusty eager early earnest elastic elder elegant empty exact exotic
fabled faint fair famous fancy fatal feeble fertile fierce final fine firm flat fluent foggy foreign formal frank
fresh frigid frosty frozen frugal gaudy gentle giant gifted gilded glad gloomy golden graceful grand grave greasy
green grim hardy harsh hasty hazel hidden hollow honest humble hungry husky idle ivory jagged jolly jovial keen kind
lavish lazy lenient level limber liquid lively local lonely loud loyal lucid lucky lunar magic major mellow merry
mighty mild minor misty modern modest muddy mute narrow native neat nervous nimble noble noisy novel olive opaque
orange pale patient perfect placid plain polite proud purple quaint quick quiet rapid rare ready regal ripe robust
rocky rough royal rugged rural rustic sacred sandy scarce scarlet secret serene severe shabby shallow sharp shiny
short shy silent silver simple sleepy slender slim slow smart smooth sober solar solemn solid somber sparse spicy
stable stale stark steady steep sterile stern stiff stormy strange strict strong stuffy subtle sudden sunny supple
swift tall tame tart tasty tender tense thick thirsty thorny tidy timid tiny tired tough tranquil trivial tropic true
trusty turquoise upbeat urban urgent useful vacant vague valid velvet vibrant vivid wary watchful weary weird whole
wicked wild windy winter wise witty wooden woolly worthy yellow young zesty
"""
_NOUNS = """
acorn actor album alley almond anchor animal ankle antler apple apron arrow artist atlas author avenue bakery ballad
bamboo banjo barrel basin basket beacon beaver bell bench berry bicycle bishop blanket blossom boulder bracket branch
breeze brick bridge bucket buffalo button cabin cable cactus camel candle canoe canyon captain carpet castle cellar
cement chain chapel cherry chimney circle clarinet cliff clock cloud clover coffee collar column comet compass copper
coral corner cottage cotton cousin cradle crane crater cricket crown crystal curtain cushion dagger daisy dancer
deputy desert diamond dinner dolphin donkey dragon drawer drummer eagle easel echo elbow elephant ember emblem engine
estate fabric falcon farmer feather fence fender ferry fiddle finger flag flame flute forest fork fossil fountain fox
friend fruit funnel galaxy garden garlic gazette geyser ginger giraffe glacier glove goblet gondola goose grape gravel
guitar hammer hammock harbor harp harvest hawk hedge helmet hermit heron hill hinge honey horizon horse hotel hunter
island jacket jaguar jewel journal jungle kennel kettle keyhole kitchen kitten knight ladder lagoon lamp lantern lark
laurel lawyer leather lemon lentil leopard letter library lily lizard lobster locket lumber magnet mango mantle maple
marble market marsh meadow melon mirror mitten monkey moon mosaic mountain museum mustard napkin needle nephew nickel
notebook nutmeg oasis ocean octopus onion orchard organ otter owl oyster paddle palace panther paper parade parrot
pasture pebble pelican pencil pepper piano pickle pigeon pillow pilot pirate planet plaster plaza plum pocket poet
pond poppy portrait potato prairie puddle pumpkin puppet puzzle pyramid quarry queen quilt rabbit raccoon radish
railway raven ribbon river robin rocket rooster rope ruby saddle saffron sailor salmon sandal satchel scarf school
scooter seagull shadow shelf shovel signal singer sketch skillet sled snail socket soldier sparrow spider spiral
sponge spoon squirrel stable stadium statue street string studio sugar summit sunset swallow tablet tailor teapot
temple theater thimble thunder ticket tiger timber tinsel toast tobacco tower tractor trail trumpet tulip tunnel
turnip turtle umbrella uncle valley vase violet violin visitor volcano voyage wagon walnut walrus warehouse waterfall
weaver whale wheel whisker widow willow window wizard wolf yacht zebra zipper
"""

ADJECTIVES, NOUNS = tuple(_ADJECTIVES.split()), tuple(_NOUNS.split())
COUNT = len(ADJECTIVES) * len(NOUNS)


def key(number: int) -> str:
    """The key of a number from 0 to COUNT - 1; another key for every number."""
    adjective, noun = divmod(number, len(NOUNS))
    return f"{ADJECTIVES[adjective]}-{NOUNS[noun]}"
