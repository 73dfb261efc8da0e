"""The words and forms that tell what a person wants, what he refuses, and what he quotes.

The classes of words are closed if possible: prepositions, auxiliaries, pronouns, negations. The
lists of verbs are open: an unknown verb leads to a question.
"""

import re

B, E = r"(?<![A-Za-z0-9_])", r"(?![A-Za-z0-9_])"
"""The start and end of a word, also next to Chinese."""
URL = r"(?:https?://|www\.)[A-Za-z0-9%_./?#&=:@~+-]{0,300}[A-Za-z0-9/_#=&-]"
MAIL = (
    r"(?:(?<![A-Za-z0-9_.+%-])[A-Za-z0-9_.+%-]{1,100})?@[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63}){0,20}"
    r"|(?<![A-Za-z0-9_-])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?(?![A-Za-z0-9_-])"
)
"""An address that needs a form that asks for it."""
FIND = re.compile(rf"(?P<url>{URL})|(?P<mail>{MAIL})")
A, U = "\x00", "\x01"
"""Replace each character of such an address, and of a URL, so that no word in them counts."""

# The words of a wish.
VERB = (
    rf"{B}(?:(?:re-?)?send|e-?mail|mail|write|use|forward|fwd|share|post|give|pay|invite|add|copy|b?cc|tell"
    r"|ask|book|call|transfer|wire|message|msg|dm|notify|contact|deliver|reply|respond|answer|follow|handle|do(?=\s+(?:the|all|what|everything))|inform|remind|text|update"
    r"|introduce|schedule|create|draft|compose|let|warn|complain|thank|apologi[sz]e|ping|shoot|drop|loop|keep"
    r"|get|hand|submit|report|set|meet|nudge|congratulate|greet|wish|slack|pass|show|explain|upload|make|sign"
    r"|put|subscribe|escalate|return|check(?=\s+with\s)|grant|assign|mention|include|consult|reach|refund|order|offer|confirm|announce|leave(?=\s+out)"
    r"|schreibe?|schicke?|sende|leite|antworte|écri[sv]e?z?|envoie|envoyez|envoyer|escribe|envía|manda|reenvía"
    rf"|(?<=mind\s)(?:send|e-?mail|mail|forward|ask|tell|invit|writ|shar)ing|(?<=bout\s)(?:send|e-?mail|mail|forward|ask|tell|invit|writ|shar)ing"
    rf")(?:\s+(?:up|out|over|back|in))?{E}"
)
WEAK = re.compile(
    rf"(?i){B}(?:let|drop|keep|get|set|show|make|report|leave|order|sign|include|mention|meet|explain|reach"
    r"|create|draft|compose|thank)"
)
"""Verbs of a wish only with other words: `get it to x`, `keep x posted`."""
WEAK_RIGHT = re.compile(
    rf"(?i)^{B}(?:let\s+{A}+\s+(?:know|have|see)|keep\s+{A}+\s+(?:in\s+the\s+loop|posted|updated|informed|in\s+cc)"
    rf"|drop\s+{A}+\s+(?:a|an)\b|(?:make\s+sure|see\s+that)\s+(?:that\s+)?{A}+\s+(?:gets?|receives?|has|knows)"
    rf"|(?:thank|reach|meet|include)\b[^{A}]{{0,40}}{A}+|[^{A}]{{0,120}}{B}(?:to|with|for|of)\s[^{A}]{{0,40}}{A}+)"
)
LEAD = re.compile(
    rf"(?i)^[\s\W_\d]*(?:(?:(?:(?:instead\s+of|rather\s+than)\s+\w+ing|please|pls|plz|kindly|now|then|next|also|just|only|simply|first(?:ly)?|finally|so|and|but|instead"
    r"|rather|hi|hey|hello|ok(?:ay)?|yes|thanks|again|still|always|directly|afterwards?|tomorrow|today|later|hence"
    r"|therefore|perhaps|maybe|either|sondern|aber|bitte|to|no|nope|nah"
    r"|(?:can|could|would|will|won['’]t|can['’]t|couldn['’]t)\s+(?:you|u)|you\s+(?:can|should|must|may|could|will|need\s+to|have\s+to)"
    r"|I(?:\s+(?:want|need|would\s+like)|['’]d\s+like)\s+(?:you\s+)?to|I\s+ask\s+you\s+to|let['’]s|(?:be|make)\s+sure\s+(?:to|you)|go\s+ahead\s+and"
    r"|feel\s+free\s+to|I(?:\s+would|['’]d)\s+appreciate\s+it\s+if\s+you(?:\s+(?:could|would))?|it\s+would\s+be\s+\w+\s+if\s+you(?:\s+(?:could|would))?|is\s+it\s+possible\s+to|(?:is\s+there\s+)?any\s+chance\s+(?:that\s+)?you\s+(?:could|can)|(?:(?:would|do)\s+you\s+)?mind|(?:how|what)\s+about|remember\s+to|help\s+me(?:\s+to)?|I\s+need|when\s+you||why\s+not|why\s+don['’]t\s+you|(?:task|todo|steps?|action)\s*:"
    r"|(?:don['’]t|do\s+not|never)\s+(?:forget|hesitate|fail|omit|neglect)\s+to|your\s+(?:task|job)\s+is\s+to"
    rf"|whatever\s+happens|(?!reply|apply)\w+ly|when\s+done){E}|[#>*\[\]()x✅☑-])[\s,:]*)*"
)
"""What may come before the verb of a wish."""
NO_PART = re.compile(
    rf"(?i){B}(?:from|by|about|of|against|who|whom|whose|that|which|than|except\w*|exclu\w+|besides|save|bar|barring|omit\w*|out|other|but|minus|if|whether|why|what|how|give\s+up|mails?\s+to|stop\w*"
    rf"|concerning|regarding|re|behind|over|before|after|instead|not|unlike|without|is|are|was|were|sent|used){E}"
)
"""Words between a verb and an address that make the address no object of the verb."""
PREPOSITION = re.compile(
    rf"(?i){B}(?:to|with|(?<!except\s)(?<!save\s)for|at|b?cc|via|an|à|a|and|plus){E}:?"
)
MOST_WORDS = 5
ANSWERS = re.compile(
    rf"(?i){B}(?:reply|answer|respond|follow|handle|do|thank|order|ask|report|forward|invite)"
)
HE_WHO = re.compile(r"(?i)(?:(?<!apart\s)(?<!aside\s)from|(?<!exception\s)of|by|sender)[\s'\"<(]*$")
LABEL = re.compile(
    r"(?i)^[\s\W_\d]*(?:(?:and|just|only|also|but|instead|rather|for|send(?:\s+it)?|please|contact|the|my|her|his|their|our|its"
    r"|new|right|correct|current|good|to|with|at|b?cc|ccing|recipients?|contacts?|e-?mail|mail|address(?:es)?|participants?|attendees?|guests?"
    r"|invitees?|sender|account|iban|payee|person|stand-in|user|name|is|are|it['’]s|it|that['’]s|below|follows|both|all|of|them|none|nobody|from|me|in|yes"
    r"|everyone|people|team|an|table|following|these|allowed|sondern|收件人|抄送|邮箱|邮件|地址|联系人|如下|是|为|的|给|发给|用|只|请|和|到|新|她|他|我|账号|账户)[\s\W_]*)*$"
)
"""What comes before an address that is given as a recipient; may be nothing."""
NOT = rf"{B}(?:don['’]?t|do\s+not|never|not)"
GIVEN = re.compile(
    rf"(?i)(?:{B}(?:(?:her|his|their|my|the|our|\w+['’]s)\s+(?:\w+\s+){{0,2}}(?:e-?mail|mail|address|contact|account|recipient|iban|stand-in)(?:\s+address)?\s*(?:is|:)"
    rf"|(?:contact|recipient|stand-in)\s+is|is\s+(?:just\s+|only\s+)?for|I\s+meant|make\s+(?:that|it)|better(?:\s+to)?|(?:her|his|their|my|our|\w+['’]s)\s+(?:bank\s+)?(?:account|iban)|goes?\s+to|(?:should|must|(?:needs?|ha(?:s|ve))\s+to)\s+(?:also\s+)?go\s+to|(?:e-?mailed|forwarded)\s+to|by\s+(?:writing|e-?mail(?:ing)?|mail(?:ing)?)\s+to|called|\(?iban|user\s+name|mailed\s+to|sent\s+to)\s*:?\s*"
    rf"|(?:{B}(?:nobody|no\s+one|none|nothing)|{NOT}\s[^.,;\n]{{0,40}}{B}any(?:one|body))\s+(?:but|except|other\s+than)\s+"
    rf"|not\s+only\s+|{NOT}\s+(?:forget|omit|leave\s+out|miss(?:\s+out)?)\s+|的(?:邮箱|邮件|地址|联系方式)是\s*|[别勿不]要?(?:忘|忘了|忘记|漏|漏掉|漏了))$"
)
GETS = re.compile(
    rf"(?i)^[\s\"'”]*(?:needs?\s+(?:the|a|an|it|this|my|our)|gets(?!\s+(?:nothing|none|no){E})|wants\s+(?:the|a|an|it|this)|(?:should|must|may|can)\s+(?:get|receive|have|see)\s+(?:it|the|this|a|my)|(?:should|must)\s+(?:also\s+)?(?:know|hear)|需要[这那一]"
    rf"|(?P<is>is\s+(?:the|my)\s+(?:right|correct|new)?\s*(?:recipient|contact|address|person))|(?:has\s+)?asked(?:\s+me)?\s+for|\S*['’]s\s+(?:mail|question|request)){E}"
)
NOT_YET = re.compile(
    rf"(?i)^\s*(?:(?:has|have|did|does|do|can|could)(?:n['’]?t|\s+not|not){E}|never\s+(?:got|received|answered|replied)|wrote|writes|needs|wants|asked|has|is\s+waiting|would\s+like|没|还没|打不开|给我发|问我)"
)
"""What somebody lacks who is then to get it: `x has not paid. Send her a reminder`."""
THEM = re.compile(
    rf"(?i){B}(?:her|him|them|again|resend|reminder|send\s+it(?!\s+to)|introduce|their|repl(?:y|ies)|respond|answer)|她|他|重发|再催|再发|再催|催|发(?![给給到往])|回复(?!{A})"
)
GOES_ON = re.compile(
    r"(?i)^\s*(?:\s|[,，、;&/+]|and|or|和|及|与|as\s+well\s+as|plus)\s*(?:(?:to|b?cc)\s*:?\s*|抄送)?(?-i:[A-Z][\w.]*\s+){0,2}[<(\"'`]*$"
)
"""Between two addresses of one list."""
PREDICATE = re.compile(
    rf"(?i)^[\s)>\"'`*_~]*(?:(?:is|are|was|were|isn['’]?t|aren['’]?t|must|might|will|would|won['’]t|can|cannot|can['’]t|could|shall|has|had|does|did|never(?!\s+to)"
    rf"|not(?!\s+(?:to|before|later|on|until|the|a|my){E})|violates|breaches|no\s+longer|at\s+your\s+peril|only\s+(?:after|over|with|if|when|once)"
    rf"|,?\s*and\s+(?:I|we|you|the|he|she|they|it)|(?:when\s+hell|once\s+pigs)|(?:instead|in\s+place)\s+of\s+me){E}|(?:to|on)\s+the\s+\w*\s*(?:block|black|ban|deny|spam)"
    rf"|as\s+an?\s+\w*(?:scam|spam|fraud)|['’]s\s+back"
    r"|\s*(?:发送?(?:邮件|信|消息)?)?(?:[以之]外|不(?!要?(?:提|抄|含|带|加|急|用|附|收))|是|会(?!议|面|上)|就(?!行|好|可以|够)|等于|属于|违|后果|了(?!解)|的(?!邮件|信|问题|来信)|之?前|以?后再|才|都|也(?!要|行|可以)|被|没(?!有?(?:附|问))|别(?!忘)|禁)"
    r"|[（(]\s*(?:不[要行可能准许对得应]|禁|别[发给寄]))"
)
"""What makes the words before it a subject: `mail x is forbidden`."""
ANSWER = re.compile(
    rf"(?i)^[\W_]{{0,8}}(?:{B}(?:but|please|absolutely|certainly|definitely|just\s+kidding|hell|sorry|oh|of\s+course|no|I\s+would){E}[\W_]*)*"
    rf"(?:{B}(?:no|nope|nay|never|not|none|don['’]?t|do\s+not|nein|forbidden|prohibited|banned|absurd|hardly|over\s+my|out\s+of\s+the\s+question"
    rf"|is\s+(?:not|wrong|forbidden)|scratch\s+that){E}|(?:请|千万|切|绝对)*(?:不要?|别|勿)|不行|不可以?|不对|不能|不会|不是|别|禁止|想都别想|做梦)"
    rf"(?=[\s)\"'*_~]*(?:$|[.,!?;:|)\n—–，。！？；）、-])|\s+(?:way|wait|ever|at\s+all|sorry|by\s+policy|thanks|dead|question|it)\b)"
)
"""A negation that answers what comes before it: `mail x? No.`"""
CORRECTS = re.compile(
    rf"(?i)[\W_]{{0,8}}(?:{B}(?:hmm+|oh|no|and|but){E}[\W_]{{0,8}})*"
    rf"(?:{B}(?:sorry(?=[\s,]+(?:I\s+meant|no|not|wrong|it['’]?s|that['’]?s){E})|oops"
    rf"|wait(?=[\s,]+(?:no|not|that)){E}|actually(?![\s,]+also)|correction|never\s?mind"
    r"|forget\s+(?:it|that)|cancel\s+(?:it|that)|on\s+second\s+thoughts?|edit\s*:|update\s*:"
    rf"|stop(?=\W*$)|better(?=\s+to)){E}|哦?不对|[说写弄]错了|等等|算了|别发了|还是(?=[发邀给])"
    r"|(?:抱歉|不好意思)(?=[，,\s]{0,2}[写发说弄搞]错))"
)
"""Takes back what comes before it: `mail x. Sorry, I meant y`."""
I_WANT = re.compile(rf"{B}(?:I|we)(?:['’]d\s+like|\s+(?:want|need|would\s+like))\s+$", re.I)
TO_GET = re.compile(rf"^\s+to\s+(?:get|have|receive|see|know|hear|be\s+(?:told|informed)){E}", re.I)
"""Around an address: `I want x to know`."""

# The words of a refusal.
HARMLESS = re.compile(
    r"(?i)\A\s*(?:no|nope|nah|nein|non|不)\s*\Z|"
    rf"{B}(?:(?:don['’]?t|do\s+not|never|not)\s+(?:forget|hesitate|fail|worry|neglect|omit|mind|leave\s+out|miss)"
    rf"|not\s+(?:only|sure|certain|yet|later|until|more|less|urgent|too\s+much|before)|(?:why|if|or)\s+not|no\.?\s*#?\d+|no[\s-](?:nonsense|rush|hurry|news|later|cc|exceptions|objections|worries|problem|smoking|answer|replacement|attachments|reply)"
    rf"|(?:instead\s+of|rather\s+than)\s+\w+ing(?=\s+{VERB})|is\s?n['’]t\s+forgotten|not\s+be\s+forgotten"
    rf"|(?:nobody|no\s+one|none|nothing)\s+(?:but|except|other\s+than|urgent)|(?:don['’]t|do\s+not|never)\s+[^.,;\n]{{0,40}}{B}any(?:one|body)\s+(?:but|except|other\s+than)"
    rf"|(?:can|could|won|would)n?['’]?t\s+you|without\s+(?:delay|further\s+ado)|(?:(?:who|that|which)\s+(?:did|do|does|are|is|was|have|has)|I\s+have)(?:n['’]t|\s+not)"
    rf"|no\s+need\s+to\s+ask|don['’]t\s+call\s+\w+|(?:I|we)\s+(?:can['’]?t|cannot|couldn['’]t|have(?:n['’]t|\s+not|\s+never)|did(?:n['’]t|\s+not))\s+(?:reach|hear|heard|find|written|met|know)"
    rf"|why\s+don['’]t\s+you|(?:if|why|whether)\s[^,.;]{{0,60}}(?:{B}|(?<=\w)(?=n['’]))(?:not|n['’]t|no|does\s?n['’]t){E}"
    rf"){E}"
    r"|(?:不要|别|勿|不)(?:忘|漏)|[别不]担心|不(?:仅|但|只|过|一定|知道|含|错|同(?!意)|久|急|客气|好意思|管|论|动产|少|断)|([要是能会可])不\1|有没有|[找打看听]不[到开见]|来不及|(?:没|无)(?:关|问题|收到|什么急)"
    r"|没收|非[常洲得]|[无無](?:论|线|锡|人机|关)|莫斯科|别[人的名墅处]|[特分级类性识区辨个告离差]别|[没未不无][^，。；\n@发给]{1,6}的(?=[^@]{0,20}[发给])|如果[^，。]{0,8}[没不]|没有?附件"
    r"|没?不了解|不在的?时候"
)
"""Negations that refuse nothing."""
NO = re.compile(
    rf"(?i){B}(?:never\w*|nevah|nevar|nevér|néver|ne?vr|don['’´`′ʹ]?t\w{{0,3}}|doin['’]t|do\s+nto|don\st|dun|cannot|not|nothing|none|no|nope|neither|nor|nobody|nowhere"
    rf"|\w{{1,12}}n['’´`′ʹ]t|cant|wont|dn?t|without|w/o|except(?:ing)?|instead\s+of|rather\s+than|other\s+than|zero|unless"
    r"|(?:any|every)(?:one|body)\s+but|(?:all|any)\s+(?:page|site|link)s\s+but|(?:all|everyone|everybody|none)\s+(?:but|save|bar)|forbidden|prohibited|banned|blocked|excluded|off[\s-]limits"
    r"|(?:leav(?:e|es|ing)|miss(?:ing)?|cut)\s+out|exclu(?:ding|sive)|omit\w*|barring|save\s+for|lest|forget|(?:with\s+the\s+)?exception|besides(?!\s*(?:,|$)|\s+(?:that|this)\b)|(?:apart|aside|different|else|elsewhere)\s+(?:from|than)(?!\s+(?:that|this)\b)"
    rf"|(?:outside|beyond|less|save|bar|minus)\s+(?:of\s+)?(?=[{A}{U}])|prevent\w*|protect\w*|keep(?:ing)?\s+(?:\w+\s+){{0,2}}(?:from|away|off|out)|hide|withhold|shield|guard"
    r"|n[\s-]?ever|nev\s+er|d\s?o\s+n\s?o\s?t|n\s?o\s?t|doNt|nicht|nie(?:mals?|mand\w*)?|nichts|kein\w{0,2}|ohne|außer|jamais|ne|pas|sans|sauf|aucun\w*|personne|rien"
    r"|nunca|jamás|sin|excepto|ning[uú]n\w*|nadie|nada|tampoco|não|nem|senza|refuse|reject(?:ed)?|stop|quit|avoid|skip|ignore|block|ban"
    rf"|никогда|никому|не|без|кроме){E}|[❌🚫⛔✗✘✕×👎🛑]|{B}n['’](?=\w)|\[\s\]|[{A}{U}\w]\s*(?-i:NG){E}"
    r"|[不勿毋莫無无没沒禁甭冇咪恕瞒瞞拒]|(?<![特分级类性识区辨个告离派差])[别別]|停止|免了|免谈|[阻防]止|以免|免得|省得|谨防|严防|杜绝|抵制|排除|剔除|忘了|漏掉|休[要想]|除(?=[^，。\n]{1,60}(?:外|，|都))|ないで|しない|않|마세요|말고|금지"
)
BLOCKS = re.compile(
    rf"(?i){B}(?:skip|ignore|avoid|exclu\w+|leav\w+|cut|omit\w*|hide|protect\w*|prevent\w*|guard|forget|miss\w*|besides|barring|apart|aside|other|save|minus|(?:with\s+the\s+)?exception|stop|block(?:ed)?|ban(?:ned)?|without|except|instead\s+of|rather\s+than|refuse|reject){E}|跳过|忽略|避免|避开|[阻防]止|排除|剔除"
)
"""Words that may refuse only a thing: "skip the pictures and mail x"."""
STOPS_ZH = re.compile(
    r"(?:停止|避免|取消|拒绝?|谢绝|反对|暂[停缓]|休想|推迟|撤[回销]|讨厌|敢|我可|等于|绕[过开過]|撇[开下]|抛开|背着|躲着|之前|除了|会|曾|已经|以前|(?<=[^，。；\s])以后|过去|昨天|去年|才能?|才可"
    r"|如果|[让叫使](?!我知)|要求|命令|[说写]着?|怎么?|怎能|岂|哪能|凭什么|为什么|是否|(?:(?<!麻烦)(?<!请)你|[她谁人]|(?<!其)他)(?:们)?(?:想|要|该|都|们)?|(?<!帮)(?<!替)我(?:们)?(?:都|昨天|已经|来|自己|再)?|网页|记录|下次|确认后再|可以|小\w|是)$"
    r"|(?:谁|原本|本来|原打算|凭什么|为什么|怎[么能]|网页|文档|骗子|对方|有人|如果.{0,9}[让叫]|假如|倘若|万一|要是.{0,9}[让叫要]|若有|以前|过去|昨天|已经|是否|查找|查一下|统计|先等等|批准才|同意才|确认后|会有人|(?<!我)说[请把让要叫应]|留言[请让要叫]|(?:要|让|叫|教|劝|催|提示|通知)(?:我们?|人|大家)(?!知)|据.{1,6}[讲说]|写着|纸条|帖子|与其)[^，。]*$"
)
"""What makes a Chinese verb after it no wish: a refusal, another subject, the past, a question."""
VERB_ZH = re.compile(
    r"(?:抄送|转发|轉發|回复|回覆|告诉|告訴|通知|邀请|邀請|联系|聯繫|提醒|感谢|投诉|转账|分享|提交|约|(?<!使)用|改[发用寄]?|[发發寄写寫传转轉付汇打]?[发發寄写寫送传转轉付汇打][给給到往信至]?|[给給向对跟与至到问叫请]|单独发给)"
    r"(?:来自|客服发邮件|邮箱|邮件|账户|[\w李-龥]{0,4}[（(])?\s*$"
)
LISTED = (
    rf"\s*(?:(?:and|or|和|及)\s*)?(?-i:[A-Z]\w+\s+){{0,2}}[<(\"]?{A}+"
    rf"(?!{A}|\s*(?!(?:and|or|too|with|about|by|on|at|for|in|as|via|to|please|today|tomorrow){E})\w)"
)
TURN = re.compile(
    rf"(?i)(?:[;；。！？!?]|{B}when\s+you(?=\s+{VERB})|(?<![\w])[-–—→|/](?![\w-])|——?|->|[,，](?!{LISTED})"
    rf"|(?<!none )(?<!body )(?<! one )(?<!thing )(?<!all )(?<!yone )"
    r"(?<!pages )(?<!sites )(?<!links )"
    rf"{B}(?:but|however|though|although|sondern|aber|mais|pero|sino)(?!\s+(?:not{E}|never))|而是|但是?|却|[:：](?!//|\s*[<\"]?{A})"
    rf"|{B}(?:and|then|so|or)(?=\s+(?:(?:then|please|just|only|simply|also|so)\s+)*{VERB})|(?<=[过略告图])并(?=[把将发给])|请(?=[把将发给转寄])|[（(](?=\s*(?:not|no|don|never|[不别])))"
)
"""Where a clause ends."""
UNIT = re.compile(
    r"(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bcf\.)(?<!\b[Mm][rs]\.)(?<!\b[Dd]r\.)(?<!\bvs\.)(?<!\bMrs\.)(?!(?<=\b[Nn]o\.)\s?\d)"
    r"(?:(?<=[.!?…])|(?<=[.!?…][\"')\]”’»]))[ \t]+|(?<=[。！？])|(?<![ \t])[ \t]*\n\s*"
)
ITEM = re.compile(r"\s*(?:[-*•|]|\d{1,3}[.)])\s")
FILLER = re.compile(
    rf"(?i){B}(?:please|ever|really|again|repeat|at|all|to|and|or|even|you|must|should|may|do|I|we|dare|then){E}|(?:(?![{A}{U}])[\W_])+|千万|请|绝对|[要得止能准许]|可以?"
)
FOLLOWING = re.compile(
    rf"(?i)(?:{B}(?:this|these|those|following|things?|do|said|say|ts|to|with|of|at|contact|mail|write){E}|以下|这些)[^,.\n]{{0,20}}[:：.。]?\s*$"
)
CONTRAST = re.compile(
    rf"(?i)^\W*(?P<word>just|only|but|rather|instead)?\s*(?:to|for|with)\s[^{A}]{{0,30}}{A}+"
)
SUBJECT = re.compile(
    rf"(?i)(?:{B}(?:must|is|are|was|were|may|can|could|should|will|would|shall|be){E}\W*|[:=(|]\s*)$"
)
ASKS = re.compile(
    rf"(?i)(?:can|could|would|will|won|couldn|wouldn)(?:['’]?t)?\s+(?:you|u){E}|would\s+you\s+mind|mind\s|possible|any\s+chance|(?:can|could)\s+(?:this|it|that|the)\b|(?:how|what)\s+about|why\s+not|please"
    r"|能不能|可不可以|能否|可否|[你您]能|[你您]可以|麻烦|何不|要不(?!要)"
)
HEAD = re.compile(
    rf"(?i){B}(?:who|whom|that|whether|why|if|what|how|before|after|give\s+up|stop\w*|mailing|writing|sending){E}"
)
LACKING = re.compile(r"^\W*(?:if|when|once|since|as)?\W*$", re.I)
NOT_HEARD = re.compile(
    r"(?i)(?:heard?(?:\s+back)?\s+from|written\s+to|(?:mail|message|letter|question)\s+from)\s+$"
)
NOTHING = re.compile(
    rf"(?i)^[\W_]*(?:(?:please|only|too|thanks|as\s+well|instead|ok|now|and|for|with|via|by|in|on|is|the|right|correct)\b[^{A}]*)?$"
)
BARE_SIGNS = re.compile(r"[\s,，、;；<>()\[\]\"'`|:：.。!*#•\d-]*")
NAMED = re.compile(rf"(?:[A-Z][\w.]*\s+){{1,3}}(?=<{A})|[A-Z][\w.]*\s*,\s*(?={A})|\([A-Z][\w.]*\)")
LETTER = re.compile(r"[^\W\d_]")
A_VERB = re.compile(VERB, re.I)
NO_SUBJECT = re.compile(
    rf"(?i)(?:{VERB}|{B}(?:and|or)|,)\W*$|^\W*(?:use|open|compare|search|book|find|look)"
)
LACKS = re.compile(r"(?:has|have|had|did|does|do)n", re.I)
ZH_VERB = re.compile(r"[发發给給用写寫打开看查找搜问回转]")
OR = re.compile(r"\b(?:or|nor)\b|或")
JOINS = re.compile(r"\b(?:and|or|nor)\b", re.I)
BESIDE_BARE = re.compile(r"\b(?:and|or|please|it['’]s)\b|和", re.I)
MAILS = re.compile(f"{A}+")
URLS = re.compile(f"{U}+")
WARNED_BEFORE = re.compile(
    rf"(?i)(?:{B}(?:stay\s+away|steer\s+clear|refrain|abstain|forbid\w*|unwise|avoid\w*|least\s+of\s+all|last\s+thing|anything\s+but"
    rf"|not\s+allowed|redirect\w*|ends?\s+up|(?:sends?|sent|takes?)\s+you|beware|careful|warning|caution|hacked|fell\s+for|flagged"
    rf"|moved\s+from|told\s+by|stranger){E}[^.!?\n。]*|{B}(?:remove|delete|replace)\s+(?:(?:all|every|the)\s+)?(?:(?:links?|references?)\s+to\s+)?"
    r"|(?:避开|小心|当心|屏蔽|跳转|有人让|有人叫|误点|旧网址|与其)[^。！？\n]*|[把将])$"
)
"""What before a URL warns of it, or names it as something to change."""
WARNED_AFTER = re.compile(
    rf"(?i)^[\s\"'”)]*(?:(?:is|was|are|were|has|looks|seems|might|may|could|contains|spreads|should\s+be){E}[^.!?\n]{{0,30}}{B}(?:phishing|scam\w*|spam|fake|fraud\w*"
    rf"|malware|virus\w*|hacked|trap|dangerous|malicious|unsafe|down|outdated|old|wrong|blocked|avoided|compromised){E}|to\s+the\s+\w*\s*(?:block|black|ban|deny)"
    rf"|,?\s*(?:close|block|stop|ignore){E}|[^。\n]{{0,6}}(?:钓鱼|假的|诈骗|骗|病毒|木马|关了|黑名单|过期|危险|除外|替换|换成|删))"
)
"""What after a URL says that it is not to be opened."""
ASKED_WHETHER = re.compile(
    rf"(?i){B}(?:whether|if|why|is|check|see|find\s+out){E}\s*$|(?:是否|看看|检查)\s*$"
)
"""Before a URL to be looked at, whatever is supposed of it."""

# What a person quotes, pastes or introduces.
FENCED = re.compile(r"(?ms)^[ \t]*(?:[-*]\s+)?(`{3,}|~{3,})[^\n`]*\n.*?(?:^[ \t]*\1[^\n]*$|\Z)")
MARKED = re.compile(
    r"(?m)^[ \t]*(?:[-*]\s)?(?:[>»＞│┃❯›》〉]|&gt;|\w{1,3}>(?=\s)|\|(?=[^|\n]*$))"
    r"(?:[^\n]*[^\n.!?:>»＞|]\n(?!\s)[^\n]+|[^\n]*)(?:\n|\Z)"
)
"""A line marked as an answered line in a reply, with the line that continues it."""
TAGGED = (re.compile(r"</(\w[\w-]{0,30})\s?>"), "<"), (re.compile(r"\[/(\w{1,30})\]"), "[")
COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.S)
QUOTED = re.compile(
    r"\'\'\'[^\']+\'\'\'|```[^`]+```|`[^`\n]+`|\"[^\"]+\"|[“„][^“”„]+[“”]|«[^«»]+»|»[^«»]+«|‹[^‹›]+›"
    r"|›[^‹›]+‹|「[^「」]+」|『[^『』]+』|(?<!\w)\'[^\'\n]+\'(?!\w)|(?<!\w)‘[^‘’\n]+’(?!\w)|‚[^‚‘\n]+‘"
    r"|〝[^〝〞]+〞|《[^《》]+》|〈[^〈〉]+〉|【[^【】]+】|(?:``|'')[^`'\n]+''|(?<!\w)\"[^\"]*\Z"
)
ADDRESS = re.compile(r"[\w.+%-]@\w|https?://|www\.|\d{6}|\b[A-Z]{2}\d\d[A-Z0-9]{4}")
CHINESE = re.compile(r"[\u3400-\u9fff]{3}")
MAIL_HEAD = re.compile(
    r"(?im)^[-*\s]{0,4}(?:from|sender|von|de|da|van|fra|od|kimden|frá|från|от|发件人|寄件者|寄件人|差出人|보낸\s사람|return-path|received)"
    r"\*{0,2}\s?[:：]|\A\s{0,9}(?:subject|betreff|asunto|objet|oggetto|主题|件名)\s?[:：]"
)
"""The sender of a mail. A mail to be sent has no such line, and does not begin a message."""
OTHER_HEAD = re.compile(r"[-*\s]{0,4}[^\W\d_][\w -]{0,20}\*{0,2}\s?[:：][^\n]*\Z")
FORWARDED = re.compile(
    r"(?im)^[ \t]*+(?:-{2,}.{0,60}(?:original|forwarded|weitergeleitete|ursprüngliche|原始|转发)"
    r".{0,60}--"
    r"|begin\b.{0,40}$|[-=*#]{3,}(?![-|]).{0,60}$|.{0,60}<<\s?'?\w+'?$|(?:fwd?|fw|re|aw|wg|转发|轉發)\s?[:：]"
    r"|.{2,200}(?:\bwrote|schrieb|a écrit|escribió|ha scritto|escreveu|schreef|napisał.{0,4}|작성"
    r"|:\d\d .{0,40}<\S+@\S+>|написала?"
    r"|のメール|写道)\s?[:：]"
    r"|<?\[?\w+>\s.*\n<\w+>\s|\[\d\d?:\d\d[^\n]*\n\[\d)"
)
"""The line before a mail or a chat that somebody else wrote."""
LOG_LINE = re.compile(
    r"(?m)^\W?(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*|\d\d:\d\d:\d\d\S*"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{1,3}(?:\.\d{1,3}){3} \S+ \S+ \["
    r"|(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\b[: ]|Traceback \()"
    r"[^\n]*(?:\n|\Z)"
)
SAID_BY_OTHERS = re.compile(
    r"(?i)(?P<says>\b(?:wrote|writes|said|says|reads|replied|answered|asks?|asked"
    r"|told (?:me|us|him|her|them)|insists?|demands?|begged (?:me|us)|recommends?|states?|stated"
    r"|(?:informed|instructed|urged|wants) (?:me|us)"
    r"|(?:was|am|were) (?:told|instructed|asked)|according to \w+,?)\b)"
    r"(?:[^\n\"“«]{0,30}(?:\"[^\"\n]*\s[^\"\n]*\"|“[^“”]*\s[^“”]*”|«[^«»]*\s[^«»]*»)"
    r"|\s(?:that|we|I|you|please|to)\b(?:[^.!?\n]|[.!?](?=\S))*)"
)
"""What others said, if longer than one word. A single quoted value is the person's."""
TEXTS = (
    "mails?|emails?|e-mails?|messages?|letter|text|article|page|post|document|comment|review|notes?"
    "|transcript|log|output|paragraph|report|invoice|bill|thread|chat|sms|ticket|input|context|ad"
    "|advert|sign|error|voicemail|request|instructions|manual|question|document|sentence|story|poem"
)
INTRODUCED = re.compile(
    rf"(?im)(?:\b(?:the|this|that|these|following|his|her|their)\s+(?:\w+\s+)?(?:{TEXTS})\b[^\n:.?!]{{0,40}}"
    r"|\b(?:says?|said|wrote|reads|got|received|below)\b[^\n:.?!]{0,20}"
    rf"|^[^\w\n]{{0,8}}(?!(?:note|review|e-?mails?|mails?)\s?[:：]\s?\S)(?:(?:an?|the|[A-Z][\w'’]*)\s+){{0,2}}(?:\w+\s)?(?:{TEXTS})\b(?!\s(?:to|for)\b)[^\n:.?!]{{0,40}}"
    r"|(?<!，)(?:说|說|写道|寫道|写"
    r"|来信|短信|内容如下|以下是邮件|聊天记录|原文|通知|留言))[:：][ \t]*(?=\S|\n)"
)
TO_SEND = re.compile(
    r"(?i)\b(?:send|write|draft|compose|post (?:this|the)|create|add|reply"
    r"|I (?:need|want)|my (?:request|task))\b"
)
READ = (
    r"(?:\b(?:summari[sz]e|sum(?:\s+up)?|tl;?dr|translate|proofread|rephrase|shorten|explain|analy[sz]e"
    r"|classify|review|correct|answer\s+(?:this|these|the)|improve|fix\s+the|make\s+(?:this|it)\s+sound|handle\s+th(?:is|ese)"
    r"|reply\s+to\s+th(?:is|ese)|respond\s+to\s+th(?:is|ese)|check\s+th(?:is|ese)"
    r"|what\s+(?:does|do|is|are)\s+th(?:is|at|ese)|what\s+is\s+it|who\s+is\s+in\s+this|why\s+does\s+(?:it|this)"
    r"|is\s+(?:this|it)\s+(?:an?\s+)?(?:spam|scam|phishing|legit|real|true|genuine|fake|safe)"
    r"|(?:here\s?(?:is|[’']s)|this\s+is)\s+what(?!\s+I\s+(?:want|need))|i\s+pasted|follows"
    r"|rewrite|paraphrase|simplify|spell|spell-?check|grammar|eli5|extract|convert|count|sentiment|tone|headline|meaning|language"
    r"|validate|pretty-?print|valid|sort|parse|compile|triage|continue|play|how\s+should\s+i|how\s+many\s+words|what\s+should\s+i|action\s+items|to-?do\s+list"
    r"|draft\s+an?\s+(?:reply|answer)|answer\s+(?:her|him|them)|above|scam|legit|what\s+does\s+(?:she|he)|who\s+has\s+to|minutes|add\s+a\s+test|unit\s+tests?|friendlier|act\s+on|which\s+of\s+these|file\s+a\s+bug"
    r"|got\s+a\s+(?:letter|mail|message)|zobacz|kolla|was\s+will|fass\w*|übersetze|résume[rz]?|traduis|traduce|riassumi|resum[aeo]\w?|vat\s+samen)\b"
    r"|кратко|переведи|要約|翻訳|요약|번역|总结|總結|翻译|翻譯|改写|提取|纠错|概括|骗局|怎么[回看]|看看|看一下|是啥|是真的吗|上面|以上|解释|解釋|润色|帮我看|什么意思|诈骗|骗人|回复这|分类|提炼|整理|真实|靠谱|合适吗|正常吗)"
)
TO_READ = re.compile(
    rf"(?im)^(?![ \t]*(?:[-*•]|\d+[.)])[ \t])(?P<asked>[^\n:：]{{0,200}}?{READ})"
    r"(?P<rest>[^\n]{0,300})"
)
IS_TO_READ = re.compile(READ, re.I)
TEXT_BEGINS = re.compile(r"[:：]+(?!//|(?<=\w:)\d)\s*|[<{\[|\\](?!https?:)|(?:[?？]\s+|？)(?=\S)")
THIS = re.compile(
    r"(?i)\b(?:this|these|that|it|following|below|what|pasted|follows|dies\w*|das|der|est[eo]|ceci|zusammen)\b|这|這|下面|以下"
)
SOURCE = re.compile(
    r"(?i)(?:(?:read|open|see|look\s+at)\s+)?(?:(?:https?://|www\.|[~./]*/)\S+|[\w./-]+\.\w{2,4}\b(?!@))"
)
"""An address or a file, at the start of what the person wants read."""
LAST_SENTENCE = re.compile(r"(?:(?<=\.)[ \t]+|(?<=。)[ \t]*)(?=[^\n.。]+[.。?？]?\Z)")
LIST_ITEM = re.compile(r"[ \t]*(?:[-*•]|\d+[.)])[ \t]")
